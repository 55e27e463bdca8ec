// Command stalled shows what becomes of an API server's watches whose clients do not read,
// as in issue 131721 of kubernetes/kubernetes: over apiserver's own cache, and over a
// store.Store, by HTTP/1.1 and by HTTP/2.
//
// In the first part clients open a watch of the whole state, read one event, and stop. One
// more reads on, slowly: an event every tenth of the limit, for two limits, and then the
// rest. Then the same, while objects are written. What is printed of each arrangement, over
// time: the server's goroutines that are parked because a watch's events are not taken, the
// slow reader's included; its handlers that are blocked in a write to the network; and the
// heap after a collection, in MB, of the whole process, which is server, etcd and clients.
// In "+limit", writes to the network have a limit, too, of half as much again as the
// store's policy: see package writelimit.
//
// In the second part a client stalls while it streams, and comes back when its watch has
// ended.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"k8s.io/klog/v2"
)

func main() {
	s := size{}
	flag.IntVar(&s.objects, "objects", 1500, "how many objects there are")
	flag.IntVar(&s.bytes, "size", 10<<10, "bytes of an object")
	flag.IntVar(&s.clients, "clients", 20, "how many clients stall")
	flag.DurationVar(&s.limit, "limit", 5*time.Second, "how long the store's policy lets a client take nothing")
	flag.DurationVar(&s.look, "look", 0, "how long to look at the stalled clients (default 4 limits)")
	flag.Parse()
	if s.look == 0 {
		s.look = 4 * s.limit
	}
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // what apiserver says of broken connections
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, s); err != nil {
		fmt.Fprintln(os.Stderr, "stalled:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, s size) error {
	fmt.Fprintf(out, "%d objects of %d bytes, %d clients that stall; limit %v\n", s.objects, s.bytes, s.clients, s.limit)
	for _, writes := range []bool{false, true} {
		if err := runInitial(ctx, out, s, writes); err != nil {
			return err
		}
	}
	return runStreaming(ctx, out, s)
}

func newTable(out io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
}

func runInitial(ctx context.Context, out io.Writer, s size, writes bool) error {
	meanwhile := "nothing is written"
	if writes {
		meanwhile = "every object is written once"
	}
	fmt.Fprintf(out, "\nStalled in the initial events, while %s: parked / blocked in a write / heap in MB\n\n", meanwhile)
	table := newTable(out)
	fmt.Fprint(table, "\t\t")
	for _, a := range arrangements {
		fmt.Fprintf(table, "%v\t", a)
	}
	fmt.Fprintln(table)
	for _, http2 := range []bool{false, true} {
		var results []*initialResult
		for _, a := range arrangements {
			r, err := stallInitial(ctx, s, a, http2, writes)
			if err != nil {
				return fmt.Errorf("%v, %s: %w", a, protocol(http2), err)
			}
			results = append(results, r)
		}
		printInitial(table, http2, results)
	}
	return table.Flush()
}

func runStreaming(ctx context.Context, out io.Writer, s size) error {
	fmt.Fprint(out, "\nStalled while streaming, with limited writes\n\n")
	table := newTable(out)
	fmt.Fprintln(table, "\tpolicy\twatch ended\thandler free\twrites\tin the first watch\tin the second\tnothing missed\t")
	for _, http2 := range []bool{false, true} {
		for _, p := range policies {
			r, err := stallStreaming(ctx, s, p, http2)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", p.name, protocol(http2), err)
			}
			printStreaming(table, http2, p, r)
		}
	}
	return table.Flush()
}

func printStreaming(table io.Writer, http2 bool, p policy, r *streamingResult) {
	second := fmt.Sprint(r.second)
	if r.expired {
		second = "410, list"
	}
	fmt.Fprintf(table, "%s\t%s\t%.1f s\t%.1f s\t%d\t%d\t%s\t%t\t\n",
		protocol(http2), p.name, r.ended.Seconds(), r.freed.Seconds(), r.writes, r.first, second, r.complete)
}

// printInitial prints the runs of one protocol, a column each.
func printInitial(table io.Writer, http2 bool, results []*initialResult) {
	line := func(what string, cell func(*initialResult) string) {
		fmt.Fprintf(table, "%s\t%s\t", protocol(http2), what)
		for _, r := range results {
			fmt.Fprintf(table, "%s\t", cell(r))
		}
		fmt.Fprintln(table)
	}
	line("no clients yet", func(r *initialResult) string { return fmt.Sprintf("- / - / %.1f", mb(r.before)) })
	rows := 0
	for _, r := range results {
		rows = max(rows, len(r.samples))
	}
	for i := range rows {
		line(fmt.Sprintf("%.1f s", results[0].at(i).at.Seconds()), func(r *initialResult) string {
			s := r.at(i)
			return fmt.Sprintf("%d / %d / %.1f", s.parked, s.blocked, mb(s.heap))
		})
	}
	line("clients gone", func(r *initialResult) string { return fmt.Sprintf("- / - / %.1f", mb(r.after)) })
	line("ended for stalling", func(r *initialResult) string { return fmt.Sprintf("%d of %d", r.ended(), len(r.stalled)) })
	line("evicted by policy", func(r *initialResult) string { return fmt.Sprint(r.evicted) })
	line("slow reader has", func(r *initialResult) string { return fmt.Sprintf("%d, complete: %t", r.slow.events, r.slow.complete) })
}

// at returns the sample of a row: runs that begin with a longer rewrite have fewer.
func (r *initialResult) at(i int) sample { return r.samples[min(i, len(r.samples)-1)] }

func mb(bytes uint64) float64 { return float64(bytes) / (1 << 20) }
