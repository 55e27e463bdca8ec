// Package k8s connects a [watchcache.Cache] with Kubernetes, in both directions.
//
// [NewSource] makes a [watchcache.Source] of anything that client-go can list and
// watch: with it a program mirrors a resource of a cluster into a cache of its own
// type.
//
// [NewListerWatcher] is the other direction: what informers and reflectors of client-go
// list and watch, out of a cache in the same process.
//
// Below it are store, an API server's storage that is served from a cache; writelimit,
// which ends responses that a client does not read; and served, such a server in the
// process, for tests and examples.
//
// Revisions are Kubernetes' resource versions, which have to be decimal numbers, as they
// are in every API server whose resource versions can be compared.
package k8s
