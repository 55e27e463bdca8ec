package watchcache_test

import (
	"strings"
	"testing"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/watchcachetest"
)

// FuzzCoalesce: what a coalescing watcher takes is what was pending, joined by key,
// as the checker says it. Each byte is a change to one of eight keys, or, from 192
// on, the consumer takes some, or a commit begins that has more changes than one.
func FuzzCoalesce(f *testing.F) {
	f.Add([]byte{0, 1, 2, 200, 128, 0, 0, 201, 129, 1, 255})
	f.Add([]byte{0, 128, 0, 128, 0, 255, 128, 0, 128, 255})
	f.Add([]byte{230, 0, 128, 1, 129, 231, 0, 1, 2, 3, 193, 194, 195})
	f.Fuzz(func(t *testing.T, steps []byte) {
		opts := options{Capacity: 64, Epoch: "e"}
		c, check := newCache(t, opts), watchcachetest.NewChecker(opts)
		writer := watchcachetest.NewWriter(check, c)
		even := func(_ string, object int) bool { return object%2 == 0 }
		type consumer struct {
			w       *watcher
			watched *watchcachetest.Watched[int]
		}
		var all []consumer
		for _, o := range []watch{{}, {Filter: even}, {Prefix: "k3"}} {
			o.Coalesce, o.Stall = true, watchcache.Resync{}
			selects := func(key string, object int) bool {
				return strings.HasPrefix(key, o.Prefix) && (o.Filter == nil || o.Filter(key, object))
			}
			all = append(all, consumer{mustWatch(t, c, o), check.Watcher("selects "+o.Prefix, selects, watchcache.Position{}).Coalesced()})
		}
		take := func(most int) {
			for _, one := range all {
				for range most {
					ev, ok, err := one.w.TryNext()
					if err != nil {
						t.Fatal(err)
					}
					if !ok {
						break
					}
					one.watched.Took(ev)
					one.watched.Position(one.w.Position())
				}
			}
		}
		var changes []change
		collect, object := 0, 0
		for _, b := range steps {
			switch {
			case b >= 224:
				collect = int(b - 224)
				continue
			case b >= 192:
				take(int(b - 192))
				continue
			}
			object++
			changes = append(changes, change{Key: "k" + string('0'+rune(b%8)), Object: object / 2 * int(b/8%2), Delete: b >= 128})
			if collect > 0 {
				collect--
				continue
			}
			if _, err := writer.Apply(watchcache.Commit[int]{Changes: changes}); err != nil {
				t.Fatal(err)
			}
			changes = nil
		}
		take(1 << 20)
		for _, one := range all {
			one.watched.CaughtUp(c.Position())
		}
		check.Verify(t)
		c.Close()
	})
}
