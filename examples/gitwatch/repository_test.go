package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/watchcache/watchcache"
)

type testRepository struct {
	t   *testing.T
	dir string
}

func newTestRepository(t *testing.T, args ...string) *testRepository {
	t.Helper()
	r := &testRepository{t, t.TempDir()}
	r.git(append([]string{"init", "-q"}, args...)...)
	r.git("symbolic-ref", "HEAD", "refs/heads/main")
	return r
}

func (r *testRepository) git(args ...string) string {
	r.t.Helper()
	config := []string{"-C", r.dir, "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgSign=false"}
	out, err := exec.Command("git", append(config, args...)...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (r *testRepository) write(path, text string) {
	r.t.Helper()
	path = filepath.Join(r.dir, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *testRepository) commit(message string) {
	r.t.Helper()
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", message)
}

const quoted = "grüße \"quoted\"\tand tabbed\nin two lines"

// madeRepository has a merge, a rename, a deletion, a mode change, a submodule that
// comes, changes and goes, a file that becomes a link, a commit that changes
// nothing, and a path that git would quote. Some of that was merged in.
func madeRepository(t *testing.T) string {
	t.Helper()
	r := newTestRepository(t)
	r.write("dir/a", "1")
	r.write("dir/b", "1")
	r.write(quoted, "1")
	r.commit("1")
	r.commit("2: nothing")
	first := r.git("rev-parse", "HEAD")
	r.git("checkout", "-qb", "side")
	r.write("side", "1")
	r.commit("aside")
	r.git("checkout", "-q", "main")
	r.write("dir/a", "2")
	r.git("mv", "dir/b", "dir/renamed")
	r.git("update-index", "--add", "--cacheinfo", "160000,"+first+",submodule")
	r.git("add", "dir/a")
	r.git("commit", "-qm", "3")
	r.git("merge", "-q", "--no-ff", "-m", "4", "side")
	r.git("update-index", "--chmod=+x", "dir/a")
	r.git("update-index", "--cacheinfo", "160000,"+r.git("rev-parse", "HEAD")+",submodule")
	r.git("rm", "-q", "side")
	r.git("commit", "-qm", "5")
	link := r.git("hash-object", "-w", "dir/renamed")
	r.git("update-index", "--cacheinfo", "120000,"+link+",dir/renamed")
	r.git("rm", "-q", "--cached", "submodule")
	r.git("commit", "-qm", "6")
	r.git("rm", "-q", "--cached", quoted)
	r.git("commit", "-qm", "7")
	return r.dir
}

func TestTheLogIsReadChangeByChange(t *testing.T) {
	const log = "commit 5\x00\n:000000 100644 0000 aaaa A\x00a path\x00:100644 100755 bbbb bbbb M\x00commit 6\x00" +
		"commit 7\x00commit 8\x00\n:100644 000000 cccc 0000 D\x00\nodd\n\x00:100644 120000 dddd eeee T\x00:x\x00"
	type change = watchcache.Change[string]
	want := []watchcache.Commit[string]{
		{Revision: 1, Time: time.Unix(5, 0), Changes: []change{{Key: "a path", Object: "aaaa"}, {Key: "commit 6", Object: "bbbb"}}},
		{Revision: 2, Time: time.Unix(7, 0)},
		{Revision: 3, Time: time.Unix(8, 0), Changes: []change{{Key: "\nodd\n", Delete: true}, {Key: ":x", Object: "eeee"}}},
	}
	for i := range want { // a deletion's object is of no interest
		for j := range want[i].Changes {
			if want[i].Changes[j].Delete {
				want[i].Changes[j].Object = "0000"
			}
		}
	}
	var got []watchcache.Commit[string]
	err := parseLog(strings.NewReader(log), func(c watchcache.Commit[string]) bool {
		got = append(got, c)
		return true
	})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("parsed as %v, %+v, want %+v", err, got, want)
	}
}

func TestAMalformedLogIsRefused(t *testing.T) {
	for _, text := range []string{
		"commit x\x00", "commit 5", "commit 5\x00junk\x00", "junk\x00", ":1 2 3 4 M\x00a\x00",
		"commit 5\x00\n:1 2 3\x00a\x00", "commit 5\x00:1 2 3 4 M\x00a", "commit 5\x00:1 2 3 4 M\x00\x00", "commit 5\x00:1 2 3 4 M\x00",
	} {
		if err := parseLog(strings.NewReader(text), func(watchcache.Commit[string]) bool { return true }); err == nil {
			t.Errorf("log %q was accepted, want an error", text)
		}
	}
}

func TestALogThatChangesMeanwhileIsAnError(t *testing.T) {
	r := &repository{dir: madeRepository(t), ids: []string{strings.Repeat("0", 40)}}
	for _, err := range r.commits(t.Context(), 0) {
		if err == nil || !strings.Contains(err.Error(), "git log") {
			t.Errorf("a commit that is not there gives %v, want what git said", err)
		}
		return
	}
	t.Error("a commit that is not there gives an empty history, want an error")
}
