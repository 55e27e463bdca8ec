package main

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/watchcache/watchcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// whole is what the state weighs.
const whole = objects * size

func TestChannelsKeepEverythingForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		atOnce, afterwards := channels()
		for when, u := range map[string]usage{"at once": atOnce, "afterwards": afterwards} {
			// One that has ended is counted for a moment, here or before.
			if u.goroutines < clients*9/10 || u.bytes < clients*whole*9/10 {
				t.Errorf("%s: %+v, want %d goroutines and %d bytes or so", when, u, clients, (clients+1)*whole)
			}
		}
	})
}

func TestTheLibraryLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		atOnce, afterwards, reason, err := library()
		if err != nil || !errors.Is(reason, watchcache.ErrStalled) {
			t.Errorf("error %v, reason %v, want none, and ErrStalled", err, reason)
		}
		if atOnce.goroutines > 2 || afterwards.goroutines > 2 {
			t.Errorf("%+v, then %+v: want at most two goroutines", atOnce, afterwards)
		}
		if atOnce.bytes < clients*whole*9/10 {
			t.Errorf("at once: %+v, want %d bytes or so: nobody was judged yet", atOnce, (clients+1)*whole)
		}
		if afterwards.bytes > 2*whole {
			t.Errorf("afterwards: %+v, want the state's %d bytes and little more", afterwards, whole)
		}
	})
}

func TestTheOutputFitsAScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		if err := show(&out); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if len(line) > 120 {
				t.Errorf("a line of %d characters, want 120 at most: %q", len(line), line)
			}
		}
		for _, want := range []string{"channels, 1.25s later", "watchcache, 1.25s later", "nothing of the initial state taken"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in\n%s", want, &out)
			}
		}
	})
}
