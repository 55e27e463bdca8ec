package watchcache

// Channel returns the watcher's stream as a channel with a buffer of that many
// events. It is for code that must select; Events is faster and tells why it
// ended, where a channel only closes: then Err has the reason.
//
// One goroutine feeds the channel. An event counts as taken when it was sent. A
// send that blocks is subject to the stall policy like a loop body: in the
// initial phase its time restarts with every send that gets through, while
// streaming the watcher falls behind. When the watcher ends, the goroutine ends,
// and closes the channel after what is buffered. A consumer that leaves early
// must call Stop.
//
// What is buffered was sent, so that Position and Delivered may be ahead of the
// receiver by the buffer, and behind it for the moment in which an unbuffered send
// is being noted: a receiver that resumes keeps the events' own revisions.
//
// A negative buffer is none. If the watcher has its consumer already, the channel
// is closed, and the watcher unharmed.
func (w *Watcher[T]) Channel(buffer int) <-chan Event[T] {
	return Pipe(w, buffer, func(ev Event[T]) (Event[T], bool) { return ev, true })
}

// Pipe is [Watcher.Channel] with a conversion, which runs on the channel's own
// goroutine. Events for which convert returns false are taken and left out. A
// panic in convert ends the watcher.
func Pipe[T, U any](w *Watcher[T], buffer int, convert func(Event[T]) (U, bool)) <-chan U {
	out := make(chan U, max(0, buffer))
	if err := w.claim("Pipe", consumerForGood); err != nil {
		close(out)
		return out
	}
	go func() {
		defer close(out)
		defer w.settle()
		defer w.endExited("Pipe")
		for {
			var ev Event[T]
			for !w.next(&ev) {
				if w.attention.Load()&ended != 0 {
					return
				}
				w.sleep(nil)
			}
			if !send(w, out, "Pipe's convert", func() (U, bool) { return convert(ev) }) {
				return
			}
			w.took()
		}
	}()
	return out
}

// PipeBatches is [Pipe] for whole commits, as of [Watcher.Batches]. convert must
// not keep the batch.
func PipeBatches[T, U any](w *Watcher[T], buffer int, convert func(Batch[T]) (U, bool)) <-chan U {
	out := make(chan U, max(0, buffer))
	if err := w.claim("PipeBatches", consumerForGood); err != nil {
		close(out)
		return out
	}
	go func() {
		defer close(out)
		defer w.settle()
		defer w.endExited("PipeBatches")
		var run batchRun[T]
		for {
			for !run.fill(w) {
				if w.attention.Load()&ended != 0 {
					return
				}
				w.sleep(nil)
			}
			if !send(w, out, "PipeBatches' convert", func() (U, bool) { return convert(run.batch()) }) {
				return
			}
			run.taken(w)
			run.reset()
		}
	}()
	return out
}

// endExited ends the watcher of a goroutine that ends although its watcher has
// not: convert, the Filter or Clone called runtime.Goexit. Which, is not known.
func (w *Watcher[T]) endExited(method string) {
	if w.attention.Load()&ended == 0 {
		w.end(exited(method))
	}
}

// send sends what convert returns, unless it says not to. It returns false if
// the watcher ended first.
func send[T, U any](w *Watcher[T], out chan<- U, name string, convert func() (U, bool)) bool {
	var value U
	var wanted bool
	if err := guard(name, func() { value, wanted = convert() }); err != nil {
		w.end(err)
		return false
	}
	if !wanted {
		return true
	}
	select {
	case out <- value:
		return true
	case <-w.Done():
		return false
	}
}
