// Command run runs every case of the comparison, and writes what comes out to
// results/: what the benchmarks said, as benchstat reads it, tables, and charts.
//
//	go run ./run            # everything: three rounds of about half an hour
//	go run ./run -rounds 1 -bench Saturated -out /tmp/results
//	go run ./run -draw      # tables and charts of what is there
//
// A round is one process with all peers in it. Exit status 1: a case failed.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 3, "how often each case is run")
	bench := flag.String("bench", ".", "which cases, as go test -bench has it")
	out := flag.String("out", "results", "where to write to")
	draw := flag.Bool("draw", false, "run nothing: make tables and charts of what is in -out")
	flag.Parse()
	err := error(nil)
	if !*draw {
		err = measure(*out, *bench, *rounds)
	}
	if err == nil {
		err = present(*out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

const rawName = "raw.txt"

// measure runs the rounds and writes raw.txt, after a head that says on what.
func measure(dir, bench string, rounds int) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	binaries, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(binaries)
	binary := filepath.Join(binaries, "bench.test")
	if out, err := exec.Command("go", "test", "-c", "-o", binary, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	raw, err := os.Create(filepath.Join(dir, rawName))
	if err != nil {
		return err
	}
	defer raw.Close()
	if err := writeHead(raw); err != nil {
		return err
	}
	for range rounds {
		cmd := exec.Command(binary, "-test.run", "^$", "-test.bench", bench, "-test.benchtime", "300ms", "-test.timeout", "2h")
		cmd.Stdout, cmd.Stderr = io.MultiWriter(raw, os.Stdout), os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("a case failed: %w", err)
		}
	}
	return raw.Close()
}

// writeHead writes lines of benchstat's form: what was measured, when and where.
func writeHead(w io.Writer) error {
	modules, err := exec.Command("go", "list", "-m", "-f", "{{.Path}} {{.Version}}",
		"k8s.io/apiserver", "github.com/cilium/statedb", "github.com/nats-io/nats-server/v2", "github.com/ThreeDotsLabs/watermill").Output()
	if err != nil {
		return fmt.Errorf("go list -m: %w", err)
	}
	revision, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return fmt.Errorf("git rev-parse: %w", err)
	}
	fmt.Fprintf(w, "date: %s\nwatchcache: %s\ngo: %s\nprocessors: %d\n", time.Now().UTC().Format(time.DateOnly), strings.TrimSpace(string(revision)), runtime.Version(), runtime.NumCPU())
	for _, line := range strings.Split(strings.TrimSpace(string(modules)), "\n") {
		path, version, _ := strings.Cut(line, " ")
		fmt.Fprintf(w, "%s: %s\n", filepath.Base(strings.TrimSuffix(path, "/v2")), version)
	}
	return nil
}
