package watchcache_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/watchcache/watchcache"
)

// TestEventsGoThroughJSON: names, not numbers, which a client in another language
// would have to be told.
func TestEventsGoThroughJSON(t *testing.T) {
	event := watchcache.Event[string]{Type: watchcache.Deleted, Key: "k", Object: "o", Prev: "p", Revision: 7,
		Cause: watchcache.LeftFilter, Time: time.Unix(1, 0).UTC()}
	const want = `{"Type":"Deleted","Key":"k","Object":"o","Prev":"p","Revision":7,"Cause":"LeftFilter","Initial":false,"More":false,"Time":"1970-01-01T00:00:01Z"}`
	text, err := json.Marshal(event)
	if err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	for kind := range watchcache.Reset + 1 {
		for cause := range watchcache.LeftFilter + 1 {
			event.Type, event.Cause = kind, cause
			text, err := json.Marshal(event)
			if err != nil {
				t.Fatal(err)
			}
			var back watchcache.Event[string]
			if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, event) {
				t.Errorf("%+v, %v, want %+v", back, err, event)
			}
		}
	}
}

func TestNoEventTypeOrCauseIsMadeUp(t *testing.T) {
	if text, err := (watchcache.Reset + 1).MarshalText(); err == nil {
		t.Errorf("%q for a type that is none", text)
	}
	if text, err := (watchcache.LeftFilter + 1).MarshalText(); err == nil {
		t.Errorf("%q for a cause that is none", text)
	}
	kind, cause := watchcache.Bookmark, watchcache.Removed
	for _, text := range []string{"bookmark", "Bookmark ", "7", "EventType(?)", "Cause(?)"} {
		if kind.UnmarshalText([]byte(text)) == nil || cause.UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q was taken for %v, %v", text, kind, cause)
		}
	}
	if kind.UnmarshalText(nil) == nil {
		t.Error("no text was taken for a type")
	}
	if kind != watchcache.Bookmark || cause != watchcache.Removed {
		t.Errorf("%v and %v after errors", kind, cause)
	}
}

func TestAStartTellsItsPosition(t *testing.T) {
	for _, row := range []struct {
		start watchcache.Start
		want  watchcache.Position
		ok    bool
	}{
		{watchcache.Start{}, watchcache.Position{}, false},
		{watchcache.FromState(), watchcache.Position{}, false},
		{watchcache.FromNow(), watchcache.Position{}, false},
		{watchcache.After(at(7)), at(7), true},
		{watchcache.After(at(7)).AllowFuture(), at(7), true},
		{watchcache.AfterRevision(7), watchcache.Position{Revision: 7}, true},
	} {
		if got, ok := row.start.Position(); got != row.want || ok != row.ok {
			t.Errorf("%v: %v, %v, want %v, %v", row.start, got, ok, row.want, row.ok)
		}
	}
	if watchcache.FromState() != (watchcache.Start{}) || watchcache.FromState() == watchcache.FromNow() {
		t.Error("== does not tell starts apart")
	}
}
