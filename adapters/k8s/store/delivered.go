package store

import (
	"io"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// metaObject is an object with metadata, as nearly all are.
type metaObject interface {
	runtime.Object
	metav1.Object
}

// delivered is an object as one client's watch has it: a runtime.CacheableObject that is
// encoded once for all clients, as long as none changes anything. Who changes something
// of it has a copy from then on, and the others notice nothing. It belongs to the one
// goroutine that has taken it from the watch.
type delivered struct {
	shared *encodings
	own    metaObject // what the client has changed; nil: nothing yet
}

var (
	_ runtime.CacheableObject = (*delivered)(nil)
	_ metaObject              = (*delivered)(nil)
)

// CacheEncode writes the object as encode does.
func (d *delivered) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	if d.own != nil {
		return encode(d.own.DeepCopyObject(), w)
	}
	return d.shared.encode(id, encode, w)
}

// GetObject returns a copy of the object.
func (d *delivered) GetObject() runtime.Object { return d.object().DeepCopyObject() }

// DeepCopyObject returns another view of the object, with the same changes.
func (d *delivered) DeepCopyObject() runtime.Object {
	c := &delivered{shared: d.shared}
	if d.own != nil {
		c.own = d.own.DeepCopyObject().(metaObject)
	}
	return c
}

// GetObjectKind returns the object's kind, which is the client's to change, too.
func (d *delivered) GetObjectKind() schema.ObjectKind { return kind{d} }

type kind struct{ d *delivered }

func (k kind) GroupVersionKind() schema.GroupVersionKind {
	return k.d.object().GetObjectKind().GroupVersionKind()
}

func (k kind) SetGroupVersionKind(gvk schema.GroupVersionKind) {
	if gvk != k.GroupVersionKind() {
		k.d.change().GetObjectKind().SetGroupVersionKind(gvk)
	}
}

func (d *delivered) object() metaObject {
	if d.own != nil {
		return d.own
	}
	return d.shared.object
}

func (d *delivered) change() metaObject {
	if d.own == nil {
		d.own = d.shared.object.DeepCopyObject().(metaObject)
	}
	return d.own
}

// set changes a field, if that is a change: encoders and servers set what is there.
func set[V any](d *delivered, get func(metaObject) V, set func(metaObject, V), to V) {
	if !reflect.DeepEqual(get(d.object()), to) {
		set(d.change(), to)
	}
}

// What follows are the fields of metav1.Object. What a client could reach into is copied:
// it changes the object by Set, and by that alone.

// GetNamespace is of metav1.Object.
func (d *delivered) GetNamespace() string { return d.object().GetNamespace() }

// SetNamespace is of metav1.Object.
func (d *delivered) SetNamespace(to string) {
	set(d, metaObject.GetNamespace, metaObject.SetNamespace, to)
}

// GetName is of metav1.Object.
func (d *delivered) GetName() string { return d.object().GetName() }

// SetName is of metav1.Object.
func (d *delivered) SetName(to string) { set(d, metaObject.GetName, metaObject.SetName, to) }

// GetGenerateName is of metav1.Object.
func (d *delivered) GetGenerateName() string { return d.object().GetGenerateName() }

// SetGenerateName is of metav1.Object.
func (d *delivered) SetGenerateName(to string) {
	set(d, metaObject.GetGenerateName, metaObject.SetGenerateName, to)
}

// GetUID is of metav1.Object.
func (d *delivered) GetUID() types.UID { return d.object().GetUID() }

// SetUID is of metav1.Object.
func (d *delivered) SetUID(to types.UID) { set(d, metaObject.GetUID, metaObject.SetUID, to) }

// GetResourceVersion is of metav1.Object.
func (d *delivered) GetResourceVersion() string { return d.object().GetResourceVersion() }

// SetResourceVersion is of metav1.Object.
func (d *delivered) SetResourceVersion(to string) {
	set(d, metaObject.GetResourceVersion, metaObject.SetResourceVersion, to)
}

// GetGeneration is of metav1.Object.
func (d *delivered) GetGeneration() int64 { return d.object().GetGeneration() }

// SetGeneration is of metav1.Object.
func (d *delivered) SetGeneration(to int64) {
	set(d, metaObject.GetGeneration, metaObject.SetGeneration, to)
}

// GetSelfLink is of metav1.Object.
func (d *delivered) GetSelfLink() string { return d.object().GetSelfLink() }

// SetSelfLink is of metav1.Object.
func (d *delivered) SetSelfLink(to string) {
	set(d, metaObject.GetSelfLink, metaObject.SetSelfLink, to)
}

// GetCreationTimestamp is of metav1.Object.
func (d *delivered) GetCreationTimestamp() metav1.Time { return d.object().GetCreationTimestamp() }

// SetCreationTimestamp is of metav1.Object.
func (d *delivered) SetCreationTimestamp(to metav1.Time) {
	set(d, metaObject.GetCreationTimestamp, metaObject.SetCreationTimestamp, to)
}

// GetDeletionTimestamp is of metav1.Object.
func (d *delivered) GetDeletionTimestamp() *metav1.Time {
	return d.object().GetDeletionTimestamp().DeepCopy()
}

// SetDeletionTimestamp is of metav1.Object.
func (d *delivered) SetDeletionTimestamp(to *metav1.Time) {
	set(d, metaObject.GetDeletionTimestamp, metaObject.SetDeletionTimestamp, to)
}

// GetDeletionGracePeriodSeconds is of metav1.Object.
func (d *delivered) GetDeletionGracePeriodSeconds() *int64 {
	if seconds := d.object().GetDeletionGracePeriodSeconds(); seconds != nil {
		return new(*seconds)
	}
	return nil
}

// SetDeletionGracePeriodSeconds is of metav1.Object.
func (d *delivered) SetDeletionGracePeriodSeconds(to *int64) {
	set(d, metaObject.GetDeletionGracePeriodSeconds, metaObject.SetDeletionGracePeriodSeconds, to)
}

// GetLabels is of metav1.Object.
func (d *delivered) GetLabels() map[string]string { return maps.Clone(d.object().GetLabels()) }

// SetLabels is of metav1.Object.
func (d *delivered) SetLabels(to map[string]string) {
	set(d, metaObject.GetLabels, metaObject.SetLabels, to)
}

// GetAnnotations is of metav1.Object.
func (d *delivered) GetAnnotations() map[string]string {
	return maps.Clone(d.object().GetAnnotations())
}

// SetAnnotations is of metav1.Object.
func (d *delivered) SetAnnotations(to map[string]string) {
	set(d, metaObject.GetAnnotations, metaObject.SetAnnotations, to)
}

// GetFinalizers is of metav1.Object.
func (d *delivered) GetFinalizers() []string { return slices.Clone(d.object().GetFinalizers()) }

// SetFinalizers is of metav1.Object.
func (d *delivered) SetFinalizers(to []string) {
	set(d, metaObject.GetFinalizers, metaObject.SetFinalizers, to)
}

// GetOwnerReferences is of metav1.Object.
func (d *delivered) GetOwnerReferences() []metav1.OwnerReference {
	return deepCopies(d.object().GetOwnerReferences())
}

// SetOwnerReferences is of metav1.Object.
func (d *delivered) SetOwnerReferences(to []metav1.OwnerReference) {
	set(d, metaObject.GetOwnerReferences, metaObject.SetOwnerReferences, to)
}

// GetManagedFields is of metav1.Object.
func (d *delivered) GetManagedFields() []metav1.ManagedFieldsEntry {
	return deepCopies(d.object().GetManagedFields())
}

// SetManagedFields is of metav1.Object.
func (d *delivered) SetManagedFields(to []metav1.ManagedFieldsEntry) {
	set(d, metaObject.GetManagedFields, metaObject.SetManagedFields, to)
}

// deepCopies copies a slice whose elements have a generated DeepCopyInto.
func deepCopies[V any, P interface {
	*V
	DeepCopyInto(*V)
}](of []V) []V {
	if of == nil {
		return nil
	}
	copies := make([]V, len(of))
	for i := range of {
		P(&of[i]).DeepCopyInto(&copies[i])
	}
	return copies
}
