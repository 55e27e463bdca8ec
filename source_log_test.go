package watchcache_test

import (
	"bytes"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/watchcachetest"
)

// TestTheLogTellsHowTheSourceFares: from its lines alone one knows when it failed,
// and since when it is well again.
func TestTheLogTellsHowTheSourceFares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		bare := func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "wait" {
				return slog.Attr{}
			}
			return a
		}
		c := newCache(t, options{Mirror: true, Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: bare}))})
		source := watchcachetest.NewSource[int]("e")
		source.Put("a", 1)
		source.FailLists(2, nil)
		go c.Run(t.Context(), source)
		time.Sleep(time.Hour)
		source.Put("a", 2)
		synctest.Wait()
		source.Cut(nil)
		time.Sleep(time.Hour)
		source.Put("a", 3)
		synctest.Wait()
		source.Restart(watchcache.Position{Epoch: "f", Revision: 1})
		time.Sleep(time.Hour)
		c.Close()
		synctest.Wait()
		rest := out.String()
		for _, want := range []string{
			`level=WARN msg="watchcache: source failed" error="[^"]*scripted[^"]*" failures=1`,
			`level=WARN msg="watchcache: source failed" error="[^"]*scripted[^"]*" failures=2`,
			`level=INFO msg="watchcache: first state" at=e:1`,
			`level=INFO msg="watchcache: source recovered" failures=2 at=e:2`,
			`level=WARN msg="watchcache: source failed" error="watchcache: the source's stream ended" failures=1`,
			`level=INFO msg="watchcache: source recovered" failures=1 at=e:3`,
			`level=INFO msg="watchcache: state replaced" from=e:3 to=f:\d+`,
		} {
			at := regexp.MustCompile(want).FindStringIndex(rest)
			if at == nil {
				t.Fatalf("the log has no line like %q after the one before; what is left:\n%s", want, rest)
			}
			rest = rest[at[1]:]
		}
		if strings.Contains(rest, "recovered") {
			t.Errorf("a listing alone is no recovery:\n%s", rest)
		}
	})
}
