// Command mutate breaks the core on purpose, one fault at a time, and tells which
// test notices. It works on a copy.
//
//	cd tools && go run ./mutate            # the table of docs/mutations.md
//	cd tools && go run ./mutate -check     # whether each fault still applies and builds
//	cd tools && go run ./mutate -only wake # those with wake in their name
//	cd tools && go run ./mutate -module adapters/k8s
//
// Exit status 1: a fault that no test noticed, or that does not apply.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

//go:embed mutations.txt
var ofCore string

//go:embed adapters.txt
var ofAdapters string

// mutation is one deliberate fault: in a file, one piece of text in place of
// another that stands there once.
type mutation struct {
	name, fault, file, old, new string
}

// apply puts the fault into its file's text.
func (m mutation) apply(whole string) (string, error) {
	if n := strings.Count(whole, m.old); n != 1 || m.old == "" {
		return "", fmt.Errorf("stands %d times in %s", n, m.file)
	}
	return strings.Replace(whole, m.old, m.new, 1), nil
}

type stage struct {
	name string
	args []string
}

// core is what is run on a fault of the core, until one fails: the cheapest first.
var core = []stage{
	{"tests", []string{"test", "-failfast", "-timeout", "120s", "."}},
	{"tests of the parts", []string{"test", "-failfast", "-timeout", "120s", "./internal/...", "./watchcachetest/..."}},
	{"race detector", []string{"test", "-failfast", "-race", "-timeout", "300s", "."}},
}

// adapter is what is run on a fault of another module: the tests of its package, and then
// all; but not those that are of what it is compared with.
func adapter(of string) []stage {
	test := []string{"test", "-failfast", "-timeout", "600s", "-skip", "OfCacher"}
	return []stage{
		{"tests", append(slices.Clip(test), "./"+filepath.ToSlash(of))},
		{"tests of the module", append(slices.Clip(test), "./...")},
	}
}

func main() {
	check := flag.Bool("check", false, "only apply each fault and build it")
	only := flag.String("only", "", "only faults whose name contains this")
	root := flag.String("root", "..", "the library's module")
	module := flag.String("module", ".", "which module's faults, below root")
	flag.Parse()
	mutations, err := parse(ofCore + ofAdapters)
	if err == nil {
		err = run(mutations, *root, *module, *only, *check)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// parse reads blocks of
//
//	== name: what the fault is
//	@ file
//	- lines that are there
//	+ lines in their place
//
// A line is what follows the sign and one space.
func parse(text string) ([]mutation, error) {
	var all []mutation
	var m *mutation
	for n, line := range strings.Split(text, "\n") {
		switch {
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "== "):
			name, fault, ok := strings.Cut(line[3:], ": ")
			if !ok {
				return nil, fmt.Errorf("line %d: no name and fault", n+1)
			}
			all = append(all, mutation{name: name, fault: fault})
			m = &all[len(all)-1]
		case m == nil:
			return nil, fmt.Errorf("line %d: before the first name", n+1)
		case strings.HasPrefix(line, "@ "):
			m.file = line[2:]
		case strings.HasPrefix(line, "- "):
			m.old += line[2:] + "\n"
		case strings.HasPrefix(line, "+ "):
			m.new += line[2:] + "\n"
		default:
			return nil, fmt.Errorf("line %d: %q", n+1, line)
		}
	}
	return all, nil
}

func run(mutations []mutation, root, module, only string, check bool) error {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := copyModule(root, dir); err != nil {
		return err
	}
	if !check {
		fmt.Println("| fault | what it does | caught by | seconds |\n| --- | --- | --- | ---: |")
	}
	bad, tried := 0, 0
	for _, m := range mutations {
		if !strings.Contains(m.name, only) || !check && moduleOf(dir, m.file) != filepath.Clean(module) {
			continue
		}
		tried++
		begin := time.Now()
		caught, err := try(dir, m, check)
		switch {
		case err != nil:
			bad++
			fmt.Printf("| %s | %s | **%v** | |\n", m.name, m.fault, err)
		case !check:
			fmt.Printf("| %s | %s | %s | %.0f |\n", m.name, m.fault, caught, time.Since(begin).Seconds())
		}
	}
	if tried == 0 {
		return fmt.Errorf("no fault of module %s has %q in its name", module, only)
	}
	if bad > 0 {
		return fmt.Errorf("%d faults not caught, or not applied", bad)
	}
	return nil
}

// copyModule copies what git knows of.
func copyModule(root, dir string) error {
	out, err := exec.Command("git", "-C", root, "ls-files", "-z", "*.go", "*go.mod", "*go.sum", "*testdata*", "*README.md", ":!tools", ":!bench").Output()
	if err != nil {
		return fmt.Errorf("git ls-files in %s (run this in tools, or give -root): %w", root, err)
	}
	for _, name := range strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(to, content, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// moduleOf returns the directory of a file's module, below dir.
func moduleOf(dir, file string) string {
	for module := filepath.Dir(file); ; module = filepath.Dir(module) {
		if _, err := os.Stat(filepath.Join(dir, module, "go.mod")); err == nil || module == "." {
			return module
		}
	}
}

var (
	errSurvived = errors.New("not caught")
	failed      = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	running     = regexp.MustCompile(`(?m)^\t+(Test\S+) \(`)
	raced       = regexp.MustCompile(`(?m)^WARNING: DATA RACE`)
	crashed     = regexp.MustCompile(`(?m)^(panic|fatal error): (.*)$`)
)

// try applies a fault, tells what caught it, and takes it back.
func try(dir string, m mutation, check bool) (caught string, err error) {
	path := filepath.Join(dir, m.file)
	whole, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	broken, err := m.apply(string(whole))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(path, []byte(broken), 0o666); err != nil {
		return "", err
	}
	defer os.WriteFile(path, whole, 0o666)
	module, stages := moduleOf(dir, m.file), core
	if module != "." {
		of, err := filepath.Rel(module, filepath.Dir(m.file))
		if err != nil {
			return "", err
		}
		stages = adapter(of)
	}
	dir = filepath.Join(dir, module)
	if out, err := command(dir, "build", "./..."); err != nil {
		return "", fmt.Errorf("does not build: %s", bytes.TrimSpace(out))
	}
	if check {
		return "", nil
	}
	for _, stage := range stages {
		out, err := command(dir, stage.args...)
		if err == nil {
			continue
		}
		if stage.name == stages[0].name {
			return what(out), nil
		}
		return what(out) + " (" + stage.name + ")", nil
	}
	return "", errSurvived
}

// what names the test that noticed.
func what(out []byte) string {
	if m := failed.FindSubmatch(out); m != nil {
		name := string(m[1])
		if raced.Match(out) {
			name += ": data race"
		}
		return name
	}
	name := "the test run"
	if m := running.FindSubmatch(out); m != nil {
		name = string(m[1])
	}
	if m := crashed.FindSubmatch(out); m != nil {
		reason := strings.TrimSpace(string(m[2]))
		if test, _, ok := strings.Cut(reason, ": "); ok && strings.HasPrefix(test, "Test") {
			return test // it knows by itself when it would hang
		}
		if strings.Contains(reason, "timed out") {
			reason = "hangs"
		}
		return name + ": " + strings.ReplaceAll(reason, "|", "/")
	}
	return name
}

func command(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	return cmd.CombinedOutput()
}
