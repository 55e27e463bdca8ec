package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/watchcache/watchcache"
)

// progress looks at a replay and shows how far it is: as a bar on a terminal, and
// else as a line a second.
type progress struct {
	out      io.Writer
	terminal bool
	cache    *watchcache.Cache[string]
	last     uint64
	behind   map[string]int // the most that a watcher was seen to lag, by its name
}

func newProgress(out io.Writer, cache *watchcache.Cache[string], h history) *progress {
	return &progress{out: out, terminal: isTerminal(out), cache: cache, last: h.last(), behind: map[string]int{}}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// show goes on until the replay is at its last revision.
func (p *progress) show(ctx context.Context) error {
	const look = 50 * time.Millisecond
	every := time.Second
	if p.terminal {
		every = 2 * look
		defer fmt.Fprintln(p.out)
	}
	shown := time.Now()
	for {
		for w := range p.cache.Watchers() {
			p.behind[w.Name] = max(p.behind[w.Name], w.Lag)
		}
		s := p.cache.Stats()
		done := s.Position.Revision >= p.last
		if done || time.Since(shown) >= every {
			shown = time.Now()
			p.print(s)
		}
		if done {
			return nil
		}
		next, cancel := context.WithTimeout(ctx, look)
		err := p.cache.WaitRevision(next, p.last)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

func (p *progress) print(s watchcache.Stats) {
	line := fmt.Sprintf("%d of %d: %s, %s, largest lag %d", s.Position.Revision, p.last, count(s.Objects, "path"), count(s.Watchers, "watcher"), s.MaxLag)
	if !p.terminal {
		fmt.Fprintln(p.out, "revision", line)
		return
	}
	const width = 20 // so that all of it fits into 80 columns
	done := int(width * s.Position.Revision / p.last)
	fmt.Fprintf(p.out, "\r[%s%s] %s\x1b[K", strings.Repeat("#", done), strings.Repeat(" ", width-done), line)
}
