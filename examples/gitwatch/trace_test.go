package main

import (
	"compress/gzip"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/watchcache/watchcache"
)

const (
	smallTrace = "1\t1000\nP\tpkg/a\tx1\nP\tb\ty1\n2\t1001\n3\t1002\nD\tb\nP\tpkg/a\tx2\n"
	bigTrace   = "../../testdata/apiserver-history.tsv.gz"
)

// writeTrace writes the small trace, with checkpoints beside it.
func writeTrace(t *testing.T, checkpoints string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "small.tsv")
	err := errors.Join(os.WriteFile(file, []byte(smallTrace), 0o644), os.WriteFile(filepath.Join(dir, "small.checkpoints.tsv"), []byte(checkpoints), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestATraceIsReadPlainAndCompressed(t *testing.T) {
	type change = watchcache.Change[string]
	want := []watchcache.Commit[string]{
		{Revision: 1, Time: time.Unix(1000, 0), Changes: []change{{Key: "pkg/a", Object: "x1"}, {Key: "b", Object: "y1"}}},
		{Revision: 2, Time: time.Unix(1001, 0)},
		{Revision: 3, Time: time.Unix(1002, 0), Changes: []change{{Key: "b", Delete: true}, {Key: "pkg/a", Object: "x2"}}},
	}
	plain := writeTrace(t, "3\t1\t"+digest(map[string]string{"pkg/a": "x2"})+"\n")
	compressed, err := os.Create(plain + ".gz")
	if err != nil {
		t.Fatal(err)
	}
	w := gzip.NewWriter(compressed)
	_, err = w.Write([]byte(smallTrace))
	if err := errors.Join(err, w.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{plain, plain + ".gz"} {
		h, err := openTrace(file)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(h.revision, want) {
			t.Errorf("%s is read as %+v, want %+v", file, h.revision, want)
		}
		if state, err := h.truth(t.Context(), 3); err != nil || !maps.Equal(state, map[string]string{"pkg/a": "x2"}) {
			t.Errorf("%s: the truth at 3 is %v, %v", file, state, err)
		}
	}
}

func TestAMalformedTraceIsRefused(t *testing.T) {
	for _, text := range []string{
		"P\ta\tb\n", "D\ta\n", "1\tx\n", "x\t1\n", "2\t5\n", "0\t5\n", "1\t5\n1\t6\n", "1\t5\nP\ta\n", "1\t5\nX\ta\tb\n", "1\t5\n\n",
		"1\t5\nP\t\tb\n", "1\t5\nD\t\n", "1\t5\nP\ta\tb\tc\n",
	} {
		if _, err := parseTrace(strings.NewReader(text)); err == nil {
			t.Errorf("trace %q was accepted, want an error", text)
		}
	}
	for _, text := range []string{"", "1\t2\n", "x\t2\tabc\n", "1\tx\tabc\n"} {
		if _, err := parseCheckpoints(strings.NewReader(text)); err == nil {
			t.Errorf("checkpoints %q were accepted, want an error", text)
		}
	}
	if _, err := openTrace(writeTrace(t, "4\t1\tabc\n")); err == nil {
		t.Error("a checkpoint beyond the trace was accepted, want an error: it would never be looked at")
	}
}

func TestTheDigestIsThatOfTheTrace(t *testing.T) {
	h, err := openTrace(bigTrace)
	if err != nil {
		t.Fatal(err)
	}
	final, err := h.truth(t.Context(), h.last()) // holds all checkpoints against it on the way
	if err != nil || len(h.known) != 15 {
		t.Errorf("%d checkpoints, want 15; %v", len(h.known), err)
	}
	if got := largest(maps.Keys(final)); got != "pkg/" {
		t.Errorf("the largest directory is %q, want pkg/", got)
	}
}
