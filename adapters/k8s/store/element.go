package store

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"weak"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/watchcache/watchcache"
)

// element is what the cache holds of an object. It does not change.
type element struct {
	object   runtime.Object
	labels   labels.Set
	fields   fields.Set
	revision uint64

	// encoded is what the deliveries that are under way share. They hold it, and the
	// element does not: an object that nobody is being sent costs no encodings.
	encoded atomic.Pointer[weak.Pointer[encodings]]
}

func newElement(object runtime.Object, attrs storage.AttrFunc, versioner storage.Versioner) (*element, error) {
	revision, err := versioner.ObjectResourceVersion(object)
	if err != nil {
		return nil, err
	}
	e := &element{object: object, revision: revision}
	if e.labels, e.fields, err = attrs(object); err != nil {
		return nil, err
	}
	return e, nil
}

// publish stamps the last object of what is deleted with the deletion's revision.
func (s *Store) publish(revision uint64, change watchcache.Change[*element], prev *element) *element {
	if !change.Delete || prev == nil {
		return change.Object
	}
	return prev.at(revision, s.versioner)
}

// at returns a copy with a revision.
func (e *element) at(revision uint64, versioner storage.Versioner) *element {
	object := e.object.DeepCopyObject()
	if versioner.UpdateObject(object, revision) != nil {
		return e // without metadata: nothing to stamp
	}
	return &element{object: object, labels: e.labels, fields: e.fields, revision: revision}
}

// matches reports whether a predicate selects the object, by what the element knows.
func (e *element) matches(p *storage.SelectionPredicate) bool {
	if p.Empty() {
		return true
	}
	if sharded, err := p.MatchesSharding(e.object); err != nil || !sharded {
		return false
	}
	return p.MatchesObjectAttributes(e.labels, e.fields)
}

// deliver returns the object for one client, who may change it.
func (e *element) deliver() runtime.Object {
	object, ok := e.object.(metaObject)
	if !ok {
		return e.object.DeepCopyObject()
	}
	return &delivered{shared: e.encodings(object)}
}

func (e *element) encodings(object metaObject) *encodings {
	var fresh *encodings
	for {
		old := e.encoded.Load()
		if old != nil {
			if shared := old.Value(); shared != nil {
				return shared
			}
		}
		if fresh == nil {
			fresh = &encodings{object: object}
		}
		pointer := weak.Make(fresh)
		if e.encoded.CompareAndSwap(old, &pointer) {
			return fresh
		}
	}
}

// encodings are an object's serialisations, each of which is made once, by the first
// who needs it, while others wait.
type encodings struct {
	object metaObject // not changed: copied for whoever may

	mu  sync.Mutex
	all []*encoding // guarded by mu
}

type encoding struct {
	id   runtime.Identifier
	once sync.Once // its end happens before the others read the below
	raw  []byte
	err  error
}

// errEncoderPanicked is what those get who waited for an encoder that panicked.
var errEncoderPanicked = errors.New("k8s: the encoder panicked")

func (s *encodings) encode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	e := s.of(id)
	e.once.Do(func() {
		e.err = errEncoderPanicked
		var buffer bytes.Buffer
		e.err = encode(s.object.DeepCopyObject(), &buffer) // encoders may change what they encode
		e.raw = buffer.Bytes()
	})
	if e.err != nil {
		return e.err
	}
	if splice, ok := w.(runtime.Splice); ok {
		splice.Splice(e.raw)
		return nil
	}
	_, err := w.Write(e.raw)
	return err
}

func (s *encodings) of(id runtime.Identifier) *encoding {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.all {
		if e.id == id {
			return e
		}
	}
	e := &encoding{id: id}
	s.all = append(s.all, e)
	return e
}
