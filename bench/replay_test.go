package bench

import (
	"bufio"
	"compress/gzip"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/watchcache/watchcache/bench/peer"
)

// BenchmarkReplay: 5,229 commits of a real repository with 28,130 changes, to 100
// watchers. Each change is a write of its own, because most peers have no commits.
func BenchmarkReplay(b *testing.B) {
	changes := history(b)
	cases(b, peer.Replay, "watchers", []int{100}, func(b *testing.B, p peer.Peer, watchers int) {
		n := len(changes)
		if p.MaxWatchers > 0 || testing.Short() {
			n = 500
		}
		f := newFleet(b, p, peer.Config{})
		defer f.close()
		f.watch(watchers, 0)
		f.burst(1)
		puts, begin := 0, now()
		for b.Loop() {
			puts += f.replay(changes[:n])
		}
		begin.per(b, puts*watchers, "delivery")
		f.report()
	})
}

var odd = regexp.MustCompile("[^A-Za-z0-9.-]")

// plain makes a path a key that every peer takes.
func plain(path string) string { return "k" + odd.ReplaceAllString(path, "_") }

type change struct {
	key    string
	delete bool
}

// replay writes the changes, and waits for the watchers as often as the peer needs: what
// it waits for is a put.
func (f *fleet) replay(changes []change) (puts int) {
	burst := f.most(keysWritten)
	if f.peer.Joins {
		burst = 1 // else it leaves out what is changed again
	}
	for len(changes) > 0 {
		n, end := 0, min(burst, len(changes))
		for i, c := range changes[:end] {
			if !c.delete {
				n++
				end = i + 1 // deletions that come last go with the next puts
			}
		}
		if n > 0 {
			f.aim(n)
		}
		for _, c := range changes[:end] {
			if !c.delete {
				f.putObject(&peer.Object{Key: c.key})
			} else if err := f.store.Delete(c.key); err != nil {
				f.b.Fatal(err)
			}
		}
		if n > 0 {
			f.await()
		} else {
			f.burst(1)
		}
		puts += n
		changes = changes[end:]
	}
	return puts
}

// history reads what ../testdata/README.md describes.
func history(b *testing.B) []change {
	b.Helper()
	file, err := os.Open("../testdata/apiserver-history.tsv.gz")
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		b.Fatal(err)
	}
	var all []change
	for lines := bufio.NewScanner(text); lines.Scan(); {
		switch field := strings.Split(lines.Text(), "\t"); field[0] {
		case "P":
			all = append(all, change{key: plain(field[1])})
		case "D":
			all = append(all, change{key: plain(field[1]), delete: true})
		}
	}
	if len(all) == 0 {
		b.Fatal("no history")
	}
	return all
}
