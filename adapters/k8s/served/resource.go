package served

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Prefix is what the keys of all objects begin with, in the storage.
const Prefix = "/configmaps/"

var (
	resource = schema.GroupResource{Resource: "configmaps"}

	scheme = runtime.NewScheme()
	codecs = serializer.NewCodecFactory(scheme)
	codec  runtime.Codec
)

func init() {
	utilruntime.Must(corev1.AddToScheme(scheme))
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	// The handlers convert to an internal version and back: here it is the same type.
	internal := schema.GroupVersion{Version: runtime.APIVersionInternal}
	scheme.AddKnownTypes(internal, &corev1.ConfigMap{}, &corev1.ConfigMapList{})
	pb := protobuf.NewSerializer(scheme, scheme)
	codec = codecs.CodecForVersions(pb, pb, corev1.SchemeGroupVersion, internal)
}

func newObject() runtime.Object { return &corev1.ConfigMap{} }
func newList() runtime.Object   { return &corev1.ConfigMapList{} }

func keyOf(object runtime.Object) (string, error) { return storage.NamespaceKeyFunc(Prefix, object) }

// newRegistry returns what the handlers work with: apiserver's own, over a storage.
func newRegistry(of storage.Interface) (*registry.Store, error) {
	r := &registry.Store{
		NewFunc:                   newObject,
		NewListFunc:               newList,
		DefaultQualifiedResource:  resource,
		SingularQualifiedResource: schema.GroupResource{Resource: "configmap"},
		CreateStrategy:            strategy{scheme, names.SimpleNameGenerator},
		UpdateStrategy:            strategy{scheme, names.SimpleNameGenerator},
		DeleteStrategy:            strategy{scheme, names.SimpleNameGenerator},
		TableConvertor:            rest.NewDefaultTableConvertor(resource),
		Storage:                   registry.DryRunnableStorage{Storage: of, Codec: codec},
	}
	err := r.CompleteWithOptions(&generic.StoreOptions{
		// The registry adds a slash of its own.
		RESTOptions: generic.RESTOptions{ResourcePrefix: strings.TrimSuffix(Prefix, "/"), DeleteCollectionWorkers: 1},
	})
	return r, err
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
