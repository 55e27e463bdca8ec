package k8s

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/watchcache/watchcache"
)

// script is a server that answers what it is told to, request by request.
type script struct {
	t       *testing.T
	lists   []func(opts metav1.ListOptions) (runtime.Object, error)
	watches []func(opts metav1.ListOptions) ([]watch.Event, error)
}

func (s *script) List(opts metav1.ListOptions) (runtime.Object, error) {
	if len(s.lists) == 0 {
		s.t.Errorf("a list too many: %+v", opts)
		return nil, errors.New("no more lists")
	}
	answer := s.lists[0]
	s.lists = s.lists[1:]
	return answer(opts)
}

// Watch tells the events that it is told to, and ends.
func (s *script) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	if len(s.watches) == 0 {
		s.t.Errorf("a watch too many: %+v", opts)
		return nil, errors.New("no more watches")
	}
	answer := s.watches[0]
	s.watches = s.watches[1:]
	events, err := answer(opts)
	if err != nil {
		return nil, err
	}
	results := make(chan watch.Event, len(events))
	for _, ev := range events {
		results <- ev
	}
	close(results)
	return watch.NewProxyWatcher(results), nil
}

func page(version, token string, keys ...string) *corev1.ConfigMapList {
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: version, Continue: token}}
	for i, key := range keys {
		list.Items = append(list.Items, *at(fmt.Sprint(i+1), configMap(key, key)))
	}
	return list
}

func at(version string, object *corev1.ConfigMap) *corev1.ConfigMap {
	object.ResourceVersion = version
	return object
}

func event(as watch.EventType, version, key, text string) watch.Event {
	return watch.Event{Type: as, Object: at(version, configMap(key, text))}
}

// listed returns what a listing says, as text.
func listed(t *testing.T, source watchcache.Source[string]) (string, error) {
	t.Helper()
	at, items, err := source.List(t.Context(), 0)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("at %d:", at.Revision)
	for item, err := range items {
		if err != nil {
			return text, err
		}
		text += fmt.Sprintf(" %s=%s@%d", item.Key, item.Object, item.Revision)
	}
	return text, nil
}

// told returns what a watch tells, as text, and its error.
func told(t *testing.T, source watchcache.Source[string], after uint64) (events []string, err error) {
	t.Helper()
	for ev, err := range source.Watch(t.Context(), watchcache.Position{Revision: after}) {
		if err != nil {
			return events, err
		}
		switch ev.Kind {
		case watchcache.SourceProgress:
			events = append(events, fmt.Sprintf("progress %d", ev.At.Revision))
		case watchcache.SourceCommit:
			text := fmt.Sprintf("commit %d", ev.Commit.Revision)
			if ev.Commit.Continues {
				text += " continues"
			}
			for _, ch := range ev.Commit.Changes {
				if ch.Delete {
					text += " -" + ch.Key
				} else {
					text += " " + ch.Key + "=" + ch.Object
				}
			}
			events = append(events, text)
		}
	}
	return events, nil
}

// mirrored returns a mirror of what the script tells until an error that is "the end".
func mirrored(t *testing.T, s *script, opts SourceOptions[string]) *watchcache.Cache[string] {
	t.Helper()
	c, err := watchcache.New(watchcache.Options[string]{Mirror: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.Run(t.Context(), NewSource[string](s, opts)); err == nil || err.Error() != "the end" {
		t.Errorf("Run: %v", err)
	}
	return c
}

// texts is a conversion that refuses "bad".
var texts = SourceOptions[string]{
	PageSize: 2,
	Convert: func(object runtime.Object) (string, error) {
		text := textOf(object.(*corev1.ConfigMap))
		if text == "bad" || strings.HasSuffix(text, "/bad") {
			return "", errors.New("it is bad")
		}
		return text, nil
	},
}

func TestListsComeInPages(t *testing.T) {
	asked := func(limit int64, token string, answer runtime.Object, err error) func(metav1.ListOptions) (runtime.Object, error) {
		return func(opts metav1.ListOptions) (runtime.Object, error) {
			if opts.Limit != limit || opts.Continue != token || opts.ResourceVersion != "" {
				t.Errorf("asked for %+v, want limit %d, continue %q, and a consistent read", opts, limit, token)
			}
			return answer, err
		}
	}
	gone := apierrors.NewResourceExpired("the list took too long")
	s := &script{t: t}
	s.lists = append(s.lists,
		asked(2, "", page("9", "more", "a/1", "a/2"), nil),
		asked(2, "more", page("9", "", "a/3"), nil),
		// Pages that do not stay, and then a list of one piece, and pages again.
		asked(2, "", page("12", "more", "a/1"), nil),
		asked(2, "more", nil, gone),
		asked(0, "", page("13", "", "a/1", "b/1"), nil),
		asked(2, "", page("14", "more", "a/1"), nil),
		asked(2, "more", page("15", "", "a/2"), nil), // of another state
		asked(2, "", nil, apierrors.NewTooManyRequests("slowly", 7)),
		asked(2, "", page("x", "", "a/1"), nil),
	)
	source := NewSource[string](s, texts)
	for _, want := range []string{
		"at 9: a/1=a/1@1 a/2=a/2@2 a/3=a/3@1",
		"at 12: a/1=a/1@1",
		"at 13: a/1=a/1@1 b/1=b/1@2",
		"at 14: a/1=a/1@1",
	} {
		got, err := listed(t, source)
		if got != want {
			t.Errorf("listed %q, want %q", got, want)
		}
		switch got[:5] {
		case "at 12":
			if !errors.Is(err, watchcache.ErrExpired) {
				t.Errorf("a page that is gone is %v", err)
			}
		case "at 14":
			if err == nil || !strings.Contains(err.Error(), "resource version 15, and began at 14") {
				t.Errorf("a page of another state is %v", err)
			}
		default:
			if err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := listed(t, source); !apierrors.IsTooManyRequests(err) {
		t.Errorf("too many requests are %v", err)
	}
	if _, err := listed(t, source); err == nil || !strings.Contains(err.Error(), `resource version "x" is no number`) {
		t.Errorf("a list at x is %v", err)
	}
}

func TestEventsOfOneRevisionThatAreThereAreOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t}
		bookmark := func(version string) watch.Event { return event(watch.Bookmark, version, "", "") }
		s.watches = append(s.watches,
			func(opts metav1.ListOptions) ([]watch.Event, error) {
				if opts.ResourceVersion != "4" || !opts.AllowWatchBookmarks || *opts.TimeoutSeconds < 300 || *opts.TimeoutSeconds > 600 {
					t.Errorf("asked for %+v", opts)
				}
				return []watch.Event{
					event(watch.Added, "5", "a/1", "x"),
					event(watch.Modified, "6", "a/1", "y"), event(watch.Deleted, "6", "a/2", "z"), event(watch.Added, "6", "a/3", "z"),
					bookmark("6"), bookmark("8"),
					event(watch.Added, "9", "a/4", "x"),
				}, nil
			},
			// It goes on by itself, where it was.
			func(opts metav1.ListOptions) ([]watch.Event, error) {
				if opts.ResourceVersion != "9" {
					t.Errorf("resumed at %q, want 9", opts.ResourceVersion)
				}
				return []watch.Event{event(watch.Added, "9", "a/5", "x"), bookmark("10"), {Type: watch.Error, Object: status410()}}, nil
			},
		)
		got, err := told(t, NewSource[string](s, texts), 4)
		want := []string{"commit 5 a/1=x", "commit 6 a/1=y -a/2 a/3=z", "progress 6", "progress 8", "commit 9 a/4=x", "commit 9 continues a/5=x", "progress 10"}
		if !slices.Equal(got, want) {
			t.Errorf("told\n%q, want\n%q", got, want)
		}
		if !errors.Is(err, watchcache.ErrExpired) || !apierrors.IsResourceExpired(err) {
			t.Errorf("a 410 is %v", err)
		}
	})
}

func status410() runtime.Object {
	status := apierrors.NewResourceExpired("too old").Status()
	return &status
}

func TestHowWatchesEnd(t *testing.T) {
	nothing := func(metav1.ListOptions) ([]watch.Event, error) { return nil, nil }
	refused := func(err error) func(metav1.ListOptions) ([]watch.Event, error) {
		return func(metav1.ListOptions) ([]watch.Event, error) { return nil, err }
	}
	tell := func(events ...watch.Event) func(metav1.ListOptions) ([]watch.Event, error) {
		return func(metav1.ListOptions) ([]watch.Event, error) { return events, nil }
	}
	for _, c := range []struct {
		name    string
		answers []func(metav1.ListOptions) ([]watch.Event, error)
		want    string
		is      error
	}{
		{"at once, with nothing", []func(metav1.ListOptions) ([]watch.Event, error){nothing}, "ended at once", nil},
		{"refused", []func(metav1.ListOptions) ([]watch.Event, error){refused(errors.New("forbidden"))}, "forbidden", nil},
		{"expired at once", []func(metav1.ListOptions) ([]watch.Event, error){refused(&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonGone, Code: 410, Message: "gone"}})}, "gone", watchcache.ErrExpired},
		{"an object that is not to be converted", []func(metav1.ListOptions) ([]watch.Event, error){tell(event(watch.Added, "5", "a/1", "bad"))}, "a/1 at resource version 5: it is bad", nil},
		{"an object without a number", []func(metav1.ListOptions) ([]watch.Event, error){tell(event(watch.Added, "five", "a/1", "x"))}, `a/1: its resource version "five" is no number`, nil},
		{"an event nobody knows", []func(metav1.ListOptions) ([]watch.Event, error){tell(watch.Event{Type: "WHAT"})}, `"WHAT"`, nil},
		{"a bookmark that is none", []func(metav1.ListOptions) ([]watch.Event, error){tell(watch.Event{Type: watch.Bookmark, Object: &metav1.Status{}})}, "a bookmark", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := told(t, NewSource[string](&script{t: t, watches: c.answers}, texts), 4)
			if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("ended with %v, want %q", err, c.want)
			}
		})
	}
}

// TestInvalidObjects: without Invalid they end Run, and with it they are not there.
func TestInvalidObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := texts
		var told []string
		opts.Invalid = func(key string, err error) { told = append(told, key+": "+err.Error()) }
		s := &script{t: t}
		s.lists = append(s.lists, func(metav1.ListOptions) (runtime.Object, error) { return page("4", "", "a/1", "a/bad", "a/2"), nil })
		s.watches = append(s.watches, func(metav1.ListOptions) ([]watch.Event, error) {
			return []watch.Event{event(watch.Modified, "5", "a/1", "bad"), event(watch.Modified, "6", "a/bad", "good")}, nil
		}, func(metav1.ListOptions) ([]watch.Event, error) {
			return nil, watchcache.Terminal(errors.New("the end"))
		})
		c := mirrored(t, s, opts)
		var got []string
		for item := range c.Snapshot().All() {
			got = append(got, item.Key+"="+item.Object)
		}
		if want := []string{"a/2=a/2", "a/bad=good"}; !slices.Equal(got, want) || c.Position().Revision != 6 {
			t.Errorf("the cache has %q at %v, want %q at 6", got, c.Position(), want)
		}
		if want := []string{"a/bad: it is bad", "a/1: it is bad"}; !slices.Equal(told, want) {
			t.Errorf("told of %q, want %q", told, want)
		}

		opts.Invalid = nil
		s.lists = append(s.lists, func(metav1.ListOptions) (runtime.Object, error) { return page("7", "", "a/bad"), nil })
		strict, _ := watchcache.New(watchcache.Options[string]{Mirror: true})
		defer strict.Close()
		if err := strict.Run(t.Context(), NewSource[string](s, opts)); err == nil || !strings.Contains(err.Error(), "a/bad at resource version 1: it is bad") {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestWatchEndsWithItsContext, also where the client leaves the context out of account.
func TestWatchEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := watch.NewRaceFreeFake()
		source := NewSource[string](deaf{fake}, texts)
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		go func() {
			time.Sleep(time.Hour)
			cancel(why)
		}()
		for _, err := range source.Watch(ctx, watchcache.Position{Revision: 1}) {
			if !errors.Is(err, why) {
				t.Errorf("ended with %v, want the context's cause", err)
			}
		}
		if !fake.IsStopped() {
			t.Error("the watch was not stopped")
		}
	})
}

// deaf is a client whose watch ends when it is stopped only.
type deaf struct{ w watch.Interface }

func (deaf) List(metav1.ListOptions) (runtime.Object, error)     { return nil, errors.New("no list") }
func (d deaf) Watch(metav1.ListOptions) (watch.Interface, error) { return d.w, nil }

// TestWrongTypeIsTold: without Convert the objects must be of the cache's type.
func TestWrongTypeIsTold(t *testing.T) {
	s := &script{t: t}
	s.lists = append(s.lists, func(metav1.ListOptions) (runtime.Object, error) { return page("4", "", "a/1"), nil })
	_, err := listed(t, NewSource[string](s, SourceOptions[string]{}))
	if err == nil || !strings.Contains(err.Error(), "is a *v1.ConfigMap, not a string; SourceOptions.Convert is missing") {
		t.Errorf("%v", err)
	}
}

// TestResourceVersionZeroIsListedAgain: to watch from it would be to get the state again,
// by name and not by revision.
func TestResourceVersionZeroIsListedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t}
		s.lists = append(s.lists,
			func(metav1.ListOptions) (runtime.Object, error) { return page("0", ""), nil },
			func(metav1.ListOptions) (runtime.Object, error) { return page("3", "", "a/1"), nil })
		s.watches = append(s.watches, func(opts metav1.ListOptions) ([]watch.Event, error) {
			if opts.ResourceVersion != "3" {
				t.Errorf("watched from %q, want 3", opts.ResourceVersion)
			}
			return nil, watchcache.Terminal(errors.New("the end"))
		})
		begin := time.Now()
		c := mirrored(t, s, texts)
		if passed := time.Since(begin); passed != unwatchableRetry || c.Position().Revision != 3 {
			t.Errorf("after %v the cache is at %v, want 3 after %v", passed, c.Position(), unwatchableRetry)
		}
	})
}

// TestTheServerSaysHowLongToWait, and Run waits as long.
func TestTheServerSaysHowLongToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t}
		s.lists = append(s.lists,
			func(metav1.ListOptions) (runtime.Object, error) {
				return nil, apierrors.NewTooManyRequests("slowly", 7)
			},
			func(metav1.ListOptions) (runtime.Object, error) {
				return nil, watchcache.Terminal(errors.New("the end"))
			})
		begin := time.Now()
		mirrored(t, s, texts)
		if passed := time.Since(begin); passed != 7*time.Second {
			t.Errorf("it was listed again after %v, want 7 s", passed)
		}
	})
}

// TestObjectsWithoutAKey: whether Key refuses them or has none for them, Invalid is told,
// also of their deletion, and the others are not held up.
func TestObjectsWithoutAKey(t *testing.T) {
	refused := errors.New("refused")
	for name, key := range map[string]func(runtime.Object) (string, error){
		"an error": func(runtime.Object) (string, error) { return "ignored", refused },
		"empty":    func(runtime.Object) (string, error) { return "", nil },
	} {
		told := 0
		opts := SourceOptions[string]{
			Convert: texts.Convert,
			Key: func(o runtime.Object) (string, error) {
				if o.(*corev1.ConfigMap).Name == "nameless" {
					return key(o)
				}
				return namespacedName(o)
			},
			Invalid: func(key string, err error) {
				if told++; key != "" || err == nil {
					t.Errorf("%s: told of %q, %v", name, key, err)
				}
			},
		}
		server := &script{t: t,
			lists: []func(metav1.ListOptions) (runtime.Object, error){
				func(metav1.ListOptions) (runtime.Object, error) { return page("5", "", "ns/nameless", "ns/a"), nil },
			},
			watches: []func(metav1.ListOptions) ([]watch.Event, error){
				func(metav1.ListOptions) ([]watch.Event, error) {
					return []watch.Event{
						event(watch.Modified, "6", "ns/nameless", "x"),
						event(watch.Deleted, "7", "ns/nameless", "x"),
						event(watch.Modified, "8", "ns/a", "x"),
					}, nil
				},
			},
		}
		source := NewSource[string](server, opts)
		_, items, err := source.List(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for item, err := range items {
			if err != nil || item.Key != "ns/a" {
				t.Errorf("%s: the list has %q, %v", name, item.Key, err)
			}
		}
		for ev, err := range source.Watch(t.Context(), watchcache.Position{Revision: 5}) {
			if err != nil || ev.Commit.Revision != 8 || len(ev.Commit.Changes) != 1 || ev.Commit.Changes[0].Key != "ns/a" {
				t.Errorf("%s: the watch tells %+v, %v", name, ev.Commit, err)
			}
			break
		}
		if told != 3 {
			t.Errorf("%s: Invalid was told %d times, want 3", name, told)
		}
		opts.Invalid = nil
		source = NewSource[string](&script{t: t, lists: []func(metav1.ListOptions) (runtime.Object, error){
			func(metav1.ListOptions) (runtime.Object, error) { return page("5", "", "ns/nameless"), nil },
		}}, opts)
		if _, items, err = source.List(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		for _, err := range items {
			if err == nil {
				t.Errorf("%s: without Invalid it is no error", name)
			}
		}
	}
}

// TestObjectsDoNotKeepTheirPage: a cache that has one of its objects still would hold all.
func TestObjectsDoNotKeepTheirPage(t *testing.T) {
	list := page("5", "", "ns/a", "ns/b")
	source := NewSource[*corev1.ConfigMap](&script{t: t, lists: []func(metav1.ListOptions) (runtime.Object, error){
		func(metav1.ListOptions) (runtime.Object, error) { return list, nil },
	}}, SourceOptions[*corev1.ConfigMap]{})
	_, items, err := source.List(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for item, err := range items {
		if err != nil || item.Object.Name != list.Items[n].Name {
			t.Fatalf("item %d is %+v, %v", n, item, err)
		}
		if item.Object == &list.Items[n] {
			t.Errorf("%s lies in the page that it came in", item.Key)
		}
		n++
	}
	if n != 2 {
		t.Errorf("%d items, want 2", n)
	}
}
