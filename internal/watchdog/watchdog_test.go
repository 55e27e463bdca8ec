package watchdog

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// noting is a task that notes when it ran.
type noting struct {
	mu    sync.Mutex
	times []time.Duration
	again func(now time.Duration)
}

func (n *noting) OnTime(now time.Duration) {
	n.mu.Lock()
	n.times = append(n.times, now)
	n.mu.Unlock()
	if n.again != nil {
		n.again(now)
	}
}

// runs reports whether the watchdog has its goroutine. To count goroutines would
// not tell: one that has ended is counted for a moment still.
func (w *Watchdog) runs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running
}

func TestTimersRunWhenTheyAreDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Real{})
		tasks := [4]*noting{{}, {}, {}, {}}
		timers := [4]*Timer{}
		for i, due := range []time.Duration{5, 3, 9, 7} {
			timers[i] = &Timer{Task: tasks[i]}
			w.Set(timers[i], due*time.Second)
		}
		w.SetBy(timers[0], 8*time.Second) // later: no change
		w.SetBy(timers[2], 4*time.Second) // earlier
		w.Cancel(timers[3])
		w.Set(timers[3], time.Second) // cancelled for good
		if w.Timers() != 3 || !w.runs() {
			t.Errorf("%d timers, running: %v, want 3 on a goroutine", w.Timers(), w.runs())
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for i, want := range [][]time.Duration{{5 * time.Second}, {3 * time.Second}, {4 * time.Second}, nil} {
			if !slices.Equal(tasks[i].times, want) {
				t.Errorf("timer %d ran at %v, want %v", i, tasks[i].times, want)
			}
		}
		if w.runs() {
			t.Error("a goroutine without a timer")
		}
	})
}

func TestATaskSetsItselfAnewUntilStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Real{})
		task := &noting{}
		timer := &Timer{Task: task}
		task.again = func(now time.Duration) { w.Set(timer, now+time.Minute) }
		w.Set(timer, time.Minute)
		time.Sleep(5*time.Minute + 1)
		w.Stop()
		time.Sleep(time.Hour)
		w.Set(timer, 0)
		if len(task.times) != 5 || w.Timers() != 0 {
			t.Errorf("ran at %v, with %d timers left, want five times and none", task.times, w.Timers())
		}
	})
}

// TestTimeIsTheClocks, also where it is counted on and not read; and a wall clock that
// was set shows a millisecond later.
func TestTimeIsTheClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(Real{})
		begin := time.Now()
		for _, step := range []time.Duration{0, 1, wallLife - 2, 1, 1, wallLife / 2, wallLife / 2, wallLife, time.Hour} {
			time.Sleep(step)
			now, since := w.Time()
			if !now.Equal(time.Now()) || since != time.Since(begin) || since != w.Now() {
				t.Errorf("after another %v: %v and %v, want %v and %v", step, now, since, time.Now(), time.Since(begin))
			}
		}
		w.wall.time = w.wall.time.Add(-time.Hour) // as if it was set forward since
		time.Sleep(wallLife - 1)
		if now, _ := w.Time(); !now.Equal(time.Now().Add(-time.Hour)) {
			t.Errorf("just after the wall clock was set: %v, want what it was, counted on", now)
		}
		time.Sleep(1 * time.Nanosecond)
		if now, _ := w.Time(); !now.Equal(time.Now()) {
			t.Errorf("a millisecond after the wall clock was set: %v, want %v", now, time.Now())
		}
	})
}

// TestTimeInABubble of a watchdog from outside is the bubble's, which is in another
// year.
func TestTimeInABubble(t *testing.T) {
	w := New(Real{})
	w.Time()
	synctest.Test(t, func(t *testing.T) {
		for range 3 {
			time.Sleep(time.Hour)
			if now, since := w.Time(); !now.Equal(time.Now()) || since != 0 {
				t.Errorf("%v and %v, want %v and 0", now, since, time.Now())
			}
		}
	})
	if now, _ := w.Time(); time.Since(now).Abs() > time.Minute {
		t.Errorf("afterwards it is %v", now)
	}
}
