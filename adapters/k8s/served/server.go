// Package served serves a resource of Kubernetes as an API server does, in the process and
// on a loopback port: apiserver's own handlers for lists, watches and writes, its chain of
// filters, its registry and its secure serving, over HTTP/1.1 and HTTP/2, in front of an
// etcd of its own. Ordinary clients and informers of client-go work with it. What serves
// lists and watches is a store.Store, or apiserver's own cache, so that one can be compared
// with the other.
//
// It is for tests, reproductions and examples: everybody may do everything, and etcd's
// data is gone in the end.
package served

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	certutil "k8s.io/client-go/util/cert"

	"github.com/watchcache/watchcache/adapters/k8s/store"
	"github.com/watchcache/watchcache/adapters/k8s/writelimit"
)

// Options are the settings of [Start]. The zero value is a server with a store.Store.
type Options struct {
	// Resource is what is served. Default ConfigMaps.
	Resource *Resource
	// Etcd is what the data is in. Default: one of its own, which the server closes.
	Etcd *Etcd
	// Address is where to listen, on the loopback interface. Default 127.0.0.1:0, which
	// is any free port.
	Address string
	// Cacher serves from apiserver's own cache, and not from a store.Store.
	Cacher bool
	// Store changes the settings of the store.Store.
	Store func(*store.Config)
	// Below puts something between the cache and etcd: to fail, or to count.
	Below func(storage.Interface) storage.Interface
	// WriteLimit is how long a write may take, to a watch and to a connection: see
	// writelimit. Default: without a limit, as in apiserver.
	WriteLimit time.Duration
	// WriteBuffer is the size of the send buffer of a connection, in bytes. Default: the
	// operating system's, which can grow to megabytes.
	WriteBuffer int
}

// Server is a running API server of one resource.
type Server struct {
	etcd    *Etcd
	owned   bool // etcd is closed with the server
	backend *backend
	serving *serving
	cert    []byte
}

// Start starts a server, and returns when it serves. It must be closed. The context is
// for the start alone.
//
// Errors: what is wrong with Options.Store's settings or Options.Address; those of
// [StartEtcd]; the context's cause.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if opts.Resource == nil {
		opts.Resource = ConfigMaps
	}
	s := &Server{etcd: opts.Etcd}
	if err := s.start(ctx, &opts); err != nil {
		s.Close()
		return nil, fmt.Errorf("served: %w", err)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, opts *Options) error {
	var err error
	if s.etcd == nil {
		if s.etcd, err = StartEtcd(ctx); err != nil {
			return err
		}
		s.owned = true
	}
	if s.backend, err = newBackend(s.etcd.client, opts); err != nil {
		return err
	}
	if err := s.backend.wait(ctx); err != nil {
		return err
	}
	r, err := opts.Resource.registry(s.backend.cached)
	if err != nil {
		return err
	}
	config := newConfig()
	handler, err := newHandler(config, opts.Resource, r)
	if err != nil {
		return err
	}
	if opts.WriteLimit > 0 {
		handler = writelimit.Handler(handler, opts.WriteLimit, func(request *http.Request) bool {
			info, err := config.RequestInfoResolver.NewRequestInfo(request)
			return err == nil && info.Verb == "watch"
		})
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return err
	}
	s.cert = cert
	content, err := dynamiccertificates.NewStaticCertKeyContent("served", cert, key)
	if err != nil {
		return err
	}
	s.serving, err = serve(ctx, handler, content, opts)
	return err
}

// newConfig returns what apiserver's filters need to know.
func newConfig() *server.Config {
	c := server.NewConfig(codecs)
	c.FeatureGate = utilfeature.DefaultFeatureGate
	// Everybody is somebody: apiserver closes the HTTP/2 connections of the anonymous.
	c.Authentication.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "client"}}, true, nil
	})
	c.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	c.RequestInfoResolver = server.NewRequestInfoResolver(c)
	return c
}

// newHandler returns apiserver's handlers for the resource, behind its filters.
func newHandler(c *server.Config, of *Resource, r *registry.Store) (http.Handler, error) {
	handler := server.NewAPIServerHandler("served", codecs, func(h http.Handler) http.Handler {
		return c.BuildHandlerChainFunc(h, c)
	}, nil)
	group := &endpoints.APIGroupVersion{
		Storage:                    map[string]rest.Storage{of.name: r},
		Root:                       server.DefaultLegacyAPIPrefix,
		GroupVersion:               corev1.SchemeGroupVersion,
		Serializer:                 codecs,
		ParameterCodec:             metav1.ParameterCodec,
		Typer:                      scheme,
		Creater:                    scheme,
		Convertor:                  scheme,
		ConvertabilityChecker:      scheme,
		Defaulter:                  scheme,
		UnsafeConvertor:            runtime.UnsafeObjectConvertor(scheme),
		TypeConverter:              managedfields.NewDeducedTypeConverter(),
		Namer:                      runtime.Namer(meta.NewAccessor()),
		EquivalentResourceRegistry: runtime.NewEquivalentResourceRegistry(),
		Authorizer:                 c.Authorization.Authorizer,
		MinRequestTimeout:          time.Duration(c.MinRequestTimeout) * time.Second,
		MaxRequestBodyBytes:        c.MaxRequestBodyBytes,
	}
	if _, _, err := group.InstallREST(handler.GoRestfulContainer); err != nil {
		return nil, err
	}
	return handler, nil
}

// Address returns where the server listens.
func (s *Server) Address() string { return s.serving.listener.Addr().String() }

// Storage returns what lists and watches are served from.
func (s *Server) Storage() storage.Interface { return s.backend.cached }

// Store returns the store.Store, or nil if there is none.
func (s *Server) Store() *store.Store { return s.backend.store }

// Etcd returns the etcd that has the data.
func (s *Server) Etcd() *Etcd { return s.etcd }

// Close ends all requests and connections, and then the cache. It returns when what the
// server has started has ended. It may be called once.
func (s *Server) Close() {
	if s.serving != nil {
		s.serving.close()
	}
	if s.backend != nil {
		s.backend.close()
	}
	if s.owned {
		s.etcd.Close()
	}
}
