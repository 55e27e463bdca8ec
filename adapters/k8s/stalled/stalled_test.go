package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// small is a run in which the state is far more than what buffers take.
var small = size{objects: 300, bytes: 10 << 10, clients: 5, limit: time.Second, look: 4 * time.Second}

// TestStalledInTheInitialEvents: what the issue reports is there with apiserver's cache,
// and gone with a store.
func TestStalledInTheInitialEvents(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, a := range arrangements {
			t.Run(protocol(http2)+" "+a.String(), func(t *testing.T) {
				r, err := stallInitial(t.Context(), small, a, http2, false)
				if err != nil {
					t.Fatal(err)
				}
				parked, blocked, ended := 0, 0, small.clients
				switch {
				case a.cacher && !a.limited:
					parked, blocked, ended = small.clients, small.clients, 0
				case !a.limited:
					blocked = small.clients // in apiserver's handler, which has no limit
				}
				last := r.samples[len(r.samples)-1]
				if last.parked != parked || last.blocked != blocked || r.ended() != ended {
					t.Errorf("in the end %d are parked, %d blocked, %d ended, want %d, %d, %d",
						last.parked, last.blocked, r.ended(), parked, blocked, ended)
				}
				if !r.slow.complete || r.slow.events != small.objects {
					t.Errorf("the slow reader has %d objects, complete: %t", r.slow.events, r.slow.complete)
				}
				if evicted := uint64(small.clients); !a.cacher && r.evicted != evicted {
					t.Errorf("%d were evicted by the policy, want %d", r.evicted, evicted)
				}
			})
		}
	}
}

// TestWritesDoNotEndASlowReader: who reads its initial events slowly gets all of them, and
// what is written meanwhile does not end it.
func TestWritesDoNotEndASlowReader(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		r, err := stallInitial(t.Context(), small, arrangement{limited: true}, http2, true)
		if err != nil {
			t.Fatal(err)
		}
		if last := r.samples[len(r.samples)-1]; !r.slow.complete || r.slow.events != small.objects || last.parked != 0 || r.ended() != small.clients {
			t.Errorf("%s: the slow reader has %d objects, complete: %t; %d are parked, %d ended",
				protocol(http2), r.slow.events, r.slow.complete, last.parked, r.ended())
		}
	}
}

// TestStalledWhileStreaming: the policy ends the watch, and its client misses nothing when
// it comes back.
func TestStalledWhileStreaming(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, p := range policies {
			t.Run(protocol(http2)+" "+p.name, func(t *testing.T) {
				r, err := stallStreaming(t.Context(), small, p, http2)
				if err != nil {
					t.Fatal(err)
				}
				if !r.complete {
					t.Errorf("events are missing, of %d: %d in the first watch, %d in the second", r.writes, r.first, r.second)
				}
				if overrun := strings.HasSuffix(p.name, "overrun"); r.expired != overrun {
					t.Errorf("the second watch was refused: %t", r.expired)
				}
			})
		}
	}
}

// TestTables: what a column has is under its heading.
func TestTables(t *testing.T) {
	var out strings.Builder
	table := newTable(&out)
	r := &initialResult{
		before: 1 << 20, after: 2 << 20, evicted: 7,
		samples: []sample{{at: time.Second, waiting: waiting{parked: 3, blocked: 4}, heap: 5 << 20}},
		slow:    outcome{events: 6, complete: true},
		stalled: []outcome{{}, {complete: true}},
	}
	printInitial(table, true, []*initialResult{r, r})
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"no clients yet - / - / 1.0 - / - / 1.0", "1.0 s 3 / 4 / 5.0 3 / 4 / 5.0", "clients gone - / - / 2.0 - / - / 2.0",
		"ended for stalling 1 of 2 1 of 2", "evicted by policy 7 7", "slow reader has 6, complete: true 6, complete: true",
	} {
		line := strings.Split(out.String(), "\n")[i]
		if got := strings.Join(strings.Fields(line), " "); got != "HTTP/2 "+want {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
	out.Reset()
	printStreaming(&out, false, policy{name: "Evict"}, &streamingResult{
		ended: time.Second, freed: 2 * time.Second, writes: 3, first: 4, expired: true, complete: true,
	})
	if want := "HTTP/1.1\tEvict\t1.0 s\t2.0 s\t3\t4\t410, list\ttrue\t\n"; out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
}
