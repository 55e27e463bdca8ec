package watchcache_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchcache/watchcache"
)

// FuzzOptions: options that are out of range or contradict each other are refused
// by the name of one of them; all others work.
func FuzzOptions(f *testing.F) {
	f.Add(false, "", uint64(0), 0, int64(0), 0, int64(0), false, uint8(0), 0, int64(0), int64(0), 0)
	f.Add(true, "e", uint64(0), 1, int64(time.Second), 1, int64(1), true, uint8(1), 1, int64(time.Second), int64(time.Second), 1)
	f.Add(false, "e", uint64(1)<<63, 1<<30, int64(1)<<62, 7, int64(1)<<62, true, uint8(0), 3, int64(1)<<62, int64(1)<<62, 1<<30)
	f.Fuzz(func(t *testing.T, mirror bool, epoch string, first uint64, capacity int, retention int64, keep int, maxBytes int64, sized bool,
		relist uint8, maxWatchers int, initialIdle, streamIdle int64, lag int) {
		opts := watchcache.Options[int]{
			Mirror: mirror, Epoch: epoch, FirstRevision: first, Capacity: capacity, Retention: time.Duration(retention), Keep: keep,
			MaxBytes: maxBytes, Relist: watchcache.RelistPolicy(relist), MaxWatchers: maxWatchers,
			Stall: watchcache.Evict{StallLimits: watchcache.StallLimits{InitialIdle: time.Duration(initialIdle), StreamIdle: time.Duration(streamIdle), Lag: lag}},
		}
		if sized {
			opts.Size = func(_ string, object int) int { return object }
		}
		synctest.Test(t, func(t *testing.T) {
			most := capacity
			if most == 0 {
				most = 16384
			}
			bad := capacity < 0 || capacity > 1<<30 || retention < 0 || keep < 0 || keep > most || keep > 0 && retention == 0 ||
				maxBytes < 0 || maxBytes > 0 && !sized || relist > 1 || maxWatchers < 0 || mirror && first > 0 ||
				initialIdle < 0 || streamIdle < 0 || lag < 0
			c, err := watchcache.New(opts)
			if bad != (err != nil) {
				t.Fatalf("%v for %+v", err, opts)
			}
			if err != nil {
				var named *watchcache.OptionError
				if !errors.As(err, &named) || !errors.Is(err, watchcache.ErrInvalidOption) || !strings.HasPrefix(named.Field, "Options.") || named.Reason == "" {
					t.Errorf("%v does not name an option", err)
				}
				return
			}
			defer c.Close()
			if mirror {
				if err := c.Replace(watchcache.Position{Epoch: epoch, Revision: 1}, listing("")); err != nil {
					t.Fatal(err)
				}
			}
			w, err := c.Watch(t.Context(), watchcache.WatchOptions[int]{})
			if err != nil {
				t.Fatal(err)
			}
			begin := c.Position()
			head := begin
			for i := range 20 {
				head.Revision++
				if _, err := c.Apply(watchcache.Commit[int]{Revision: head.Revision, Changes: []watchcache.Change[int]{{Key: "k", Object: i}}}); err != nil {
					if head.Revision > 0 || !errors.Is(err, watchcache.ErrRevisionOrder) { // 0: used up
						t.Fatal(err)
					}
					head.Revision--
					break
				}
			}
			if got, ok := c.Get("k"); head != begin && (!ok || got.Revision != head.Revision) {
				t.Errorf("%v, %v at %v", got, ok, head)
			}
			stats := c.Stats()
			if stats.History > most || stats.Position != head {
				t.Errorf("%+v", stats)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			w.Stop()
			if stats := c.Stats(); stats.Watchers != 0 {
				t.Errorf("%d watchers are left", stats.Watchers)
			}
		})
	})
}
