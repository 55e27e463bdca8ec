package watchcache_test

import (
	"encoding/json"
	"errors"
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

func TestAPhaseAndAVerdictAreTextInJSON(t *testing.T) {
	type both struct {
		Phase   watchcache.Phase
		Verdict watchcache.Verdict
	}
	text, err := json.Marshal(both{watchcache.PhaseStreaming, watchcache.VerdictResync})
	if want := `{"Phase":"streaming","Verdict":"resync"}`; err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	for phase := range watchcache.PhaseEnded + 1 {
		for verdict := range watchcache.VerdictResync + 1 {
			text, err := json.Marshal(both{phase, verdict})
			var back both
			if err := errors.Join(err, json.Unmarshal(text, &back)); err != nil || back != (both{phase, verdict}) {
				t.Errorf("%s came back as %v, %v", text, back, err)
			}
		}
	}
	was := both{watchcache.PhaseEnded, watchcache.VerdictEvict}
	for _, text := range []string{"", "Streaming", "3", "Phase(?)", "Verdict(?)"} {
		if was.Phase.UnmarshalText([]byte(text)) == nil || was.Verdict.UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q was taken for %v", text, was)
		}
	}
	if was != (both{watchcache.PhaseEnded, watchcache.VerdictEvict}) {
		t.Errorf("%v after errors", was)
	}
	if text, err := (watchcache.PhaseEnded + 1).MarshalText(); err == nil {
		t.Errorf("%q for a phase that is none", text)
	}
	if text, err := (watchcache.VerdictResync + 1).MarshalText(); err == nil {
		t.Errorf("%q for a verdict that is none", text)
	}
}

// TestFiguresInJSONTellTheLastError: as an error it would be {}.
func TestFiguresInJSONTellTheLastError(t *testing.T) {
	at := watchcache.Position{Epoch: "e", Revision: 7}
	for want, value := range map[string]any{
		"mine 1": watchcache.Stats{Position: at, Objects: 3, LastError: errors.New("mine 1")},
		"mine 2": watchcache.Status{Ready: true, LastError: errors.New("mine 2")},
		"":       watchcache.Stats{Position: at},
	} {
		text, err := json.Marshal(value)
		var got map[string]any
		if err := errors.Join(err, json.Unmarshal(text, &got)); err != nil {
			t.Fatal(err)
		}
		if got["LastError"] != want {
			t.Errorf("%s, want the last error %q", text, want)
		}
		kind := reflect.TypeOf(value)
		for i := range kind.NumField() {
			if _, ok := got[kind.Field(i).Name]; !ok {
				t.Errorf("%s is missing in %s", kind.Field(i).Name, text)
			}
		}
		if _, of := value.(watchcache.Stats); of && got["Position"] != "e:7" {
			t.Errorf("%s, want the position e:7", text)
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
