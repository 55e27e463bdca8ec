package store

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchcache/watchcache"
)

// answers is a source whose watch gives one answer each time.
type answers struct {
	watchcache.Source[*element]
	event watchcache.SourceEvent[*element]
	err   error
}

func (a *answers) Watch(context.Context, watchcache.Position) iter.Seq2[watchcache.SourceEvent[*element], error] {
	return func(yield func(watchcache.SourceEvent[*element], error) bool) { yield(a.event, a.err) }
}

func watchOnce(t *testing.T, s *source) error {
	for _, err := range s.Watch(t.Context(), watchcache.Position{Revision: 1}) {
		return err
	}
	t.Fatal("the watch tells nothing")
	return nil
}

// TestWhatCannotBeWatchedIsListedAgain: at once after the deletion of what cannot be read,
// and otherwise when the watch has failed for half a minute without a word.
func TestWhatCannotBeWatchedIsListedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &answers{}
		s := &source{Source: from}
		from.err = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonStoreReadError}}
		if err := watchOnce(t, s); !errors.Is(err, watchcache.ErrExpired) || !errors.Is(err, from.err) {
			t.Errorf("a corrupt object's deletion: %v, want it as expired", err)
		}
		internal := apierrors.NewInternalError(errors.New("it cannot be decoded"))
		failFor := func(d time.Duration) {
			t.Helper()
			for end := time.Now().Add(d); !time.Now().After(end); time.Sleep(time.Second) {
				if err := watchOnce(t, s); errors.Is(err, watchcache.ErrExpired) || !errors.Is(err, internal) {
					t.Fatalf("before half a minute is over: %v, want it as it is", err)
				}
			}
		}
		from.err = internal
		failFor(unreadableFor / 2)
		from.err = nil // a word in between
		if err := watchOnce(t, s); err != nil {
			t.Fatal(err)
		}
		from.err = internal
		failFor(unreadableFor)
		if err := watchOnce(t, s); !errors.Is(err, watchcache.ErrExpired) || !errors.Is(err, internal) {
			t.Errorf("after half a minute: %v, want it as expired", err)
		}
		failFor(unreadableFor) // and from there on anew
	})
}
