// Command k8s mirrors pods into a cache of its own type, prints each change, and shows what
// becomes of a watcher that stalls.
//
//	go run .                        # an API server in the process; nothing to install
//	go run . -kubeconfig ~/.kube/config -namespace kube-system
//
// With an API server of its own there is something to see: pods are created, scheduled,
// started and deleted. Of a real cluster it only reads.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

type settings struct {
	kubeconfig, namespace string
	runFor                time.Duration
	limit                 time.Duration // how long a watcher may take nothing
}

func main() {
	var s settings
	flag.StringVar(&s.kubeconfig, "kubeconfig", "", "the cluster to read (default: an API server in the process)")
	flag.StringVar(&s.namespace, "namespace", "default", "whose pods; empty: all")
	flag.DurationVar(&s.runFor, "for", 10*time.Second, "how long to run")
	flag.DurationVar(&s.limit, "limit", 2*time.Second, "how long a watcher may take nothing of its state")
	flag.Parse()
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // what the API server says of itself
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, s); err != nil {
		fmt.Fprintln(os.Stderr, "k8s:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, s settings) error {
	if s.kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
		if err != nil {
			return err
		}
		return mirror(ctx, out, config, s)
	}
	fmt.Fprintln(out, "an API server starts in the process")
	return withServer(ctx, func(ctx context.Context, config *rest.Config) error { return mirror(ctx, out, config, s) })
}
