package served

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
)

// Resource is what a server serves.
type Resource struct {
	name, singular     string
	newObject, newList func() runtime.Object
	fields             func(runtime.Object, fields.Set) // beside name and namespace; nil: none
	index              string                           // the field that watches are chosen by; "": none
}

const nodeName = "spec.nodeName"

// Resources of core/v1, without validation of their own. Pods may be selected by the fields
// spec.nodeName and status.phase.
var (
	ConfigMaps = &Resource{
		name:      "configmaps",
		singular:  "configmap",
		newObject: func() runtime.Object { return &corev1.ConfigMap{} },
		newList:   func() runtime.Object { return &corev1.ConfigMapList{} },
	}
	Pods = &Resource{
		name:      "pods",
		singular:  "pod",
		newObject: func() runtime.Object { return &corev1.Pod{} },
		newList:   func() runtime.Object { return &corev1.PodList{} },
		fields: func(object runtime.Object, of fields.Set) {
			pod := object.(*corev1.Pod)
			of[nodeName], of["status.phase"] = pod.Spec.NodeName, string(pod.Status.Phase)
		},
		index: nodeName,
	}
)

var (
	scheme = runtime.NewScheme()
	codecs = serializer.NewCodecFactory(scheme)
	codec  runtime.Codec
)

func init() {
	utilruntime.Must(corev1.AddToScheme(scheme))
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	// The handlers convert to an internal version and back: here it is the same type.
	internal := schema.GroupVersion{Version: runtime.APIVersionInternal}
	for _, r := range []*Resource{ConfigMaps, Pods} {
		scheme.AddKnownTypes(internal, r.newObject(), r.newList())
	}
	utilruntime.Must(scheme.AddFieldLabelConversionFunc(corev1.SchemeGroupVersion.WithKind("Pod"), podField))
	pb := protobuf.NewSerializer(scheme, scheme)
	codec = codecs.CodecForVersions(pb, pb, corev1.SchemeGroupVersion, internal)
}

// podField is a runtime.FieldLabelConversionFunc.
func podField(label, value string) (string, string, error) {
	switch label {
	case nodeName, "status.phase":
		return label, value, nil
	}
	return runtime.DefaultMetaV1FieldSelectorConversion(label, value)
}

// Prefix is what the keys of all objects begin with in the storage, which puts /registry
// before them in etcd.
func (r *Resource) Prefix() string { return "/" + r.name + "/" }

func (r *Resource) group() schema.GroupResource { return schema.GroupResource{Resource: r.name} }

func (r *Resource) keyOf(object runtime.Object) (string, error) {
	return storage.NamespaceKeyFunc(r.Prefix(), object)
}

// attributes is a storage.AttrFunc.
func (r *Resource) attributes(object runtime.Object) (labels.Set, fields.Set, error) {
	ls, fs, err := storage.DefaultNamespaceScopedAttr(object)
	if err == nil && r.fields != nil {
		r.fields(object, fs)
	}
	return ls, fs, err
}

func (r *Resource) triggers() storage.IndexerFuncs {
	if r.index == "" {
		return nil
	}
	return storage.IndexerFuncs{r.index: func(object runtime.Object) string {
		of := fields.Set{}
		r.fields(object, of)
		return of[r.index]
	}}
}

func (r *Resource) predicate(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
	p := storage.SelectionPredicate{Label: label, Field: field, GetAttrs: r.attributes}
	if r.index != "" {
		p.IndexFields = []string{r.index}
	}
	return p
}

// registry returns what the handlers work with: apiserver's own, over a storage.
func (r *Resource) registry(of storage.Interface) (*registry.Store, error) {
	s := &registry.Store{
		NewFunc:                   r.newObject,
		NewListFunc:               r.newList,
		PredicateFunc:             r.predicate,
		DefaultQualifiedResource:  r.group(),
		SingularQualifiedResource: schema.GroupResource{Resource: r.singular},
		CreateStrategy:            strategy{scheme, names.SimpleNameGenerator},
		UpdateStrategy:            strategy{scheme, names.SimpleNameGenerator},
		DeleteStrategy:            strategy{scheme, names.SimpleNameGenerator},
		TableConvertor:            rest.NewDefaultTableConvertor(r.group()),
		Storage:                   registry.DryRunnableStorage{Storage: of, Codec: codec},
	}
	err := s.CompleteWithOptions(&generic.StoreOptions{
		AttrFunc: r.attributes,
		// The registry adds a slash of its own.
		RESTOptions: generic.RESTOptions{ResourcePrefix: strings.TrimSuffix(r.Prefix(), "/"), DeleteCollectionWorkers: 1},
	})
	return s, err
}

// strategy lets clients write what they like.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
}

func (strategy) NamespaceScoped() bool                                            { return true }
func (strategy) AllowCreateOnUpdate(context.Context) bool                         { return false }
func (strategy) AllowUnconditionalUpdate(context.Context) bool                    { return true }
func (strategy) Canonicalize(runtime.Object)                                      {}
func (strategy) PrepareForCreate(context.Context, runtime.Object)                 {}
func (strategy) PrepareForUpdate(_ context.Context, _, _ runtime.Object)          {}
func (strategy) Validate(context.Context, runtime.Object) field.ErrorList         { return nil }
func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string        { return nil }
func (strategy) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) []string { return nil }
func (strategy) ValidateUpdate(_ context.Context, _, _ runtime.Object) field.ErrorList {
	return nil
}
