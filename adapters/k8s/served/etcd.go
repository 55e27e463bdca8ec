package served

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// Etcd is an etcd of one member inside the process, on a loopback port, with its data in
// a temporary directory. It does not sync to disk.
type Etcd struct {
	server *embed.Etcd
	client *kubernetes.Client
	dir    string
}

const etcdStart = time.Minute

// StartEtcd starts an etcd. It must be closed.
//
// Errors: the operating system's and etcd's; the context's cause.
func StartEtcd(ctx context.Context) (*Etcd, error) {
	dir, err := os.MkdirTemp("", "served-etcd-")
	if err != nil {
		return nil, err
	}
	e := &Etcd{dir: dir}
	if err := e.start(ctx); err != nil {
		e.Close()
		return nil, fmt.Errorf("served: etcd: %w", err)
	}
	return e, nil
}

func (e *Etcd) start(ctx context.Context) error {
	config := embed.NewConfig()
	anyPort := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenPeerUrls, config.AdvertisePeerUrls = anyPort, anyPort
	config.ListenClientUrls, config.AdvertiseClientUrls = anyPort, anyPort
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.Dir = e.dir
	config.UnsafeNoFsync = true
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	var err error
	if e.server, err = embed.StartEtcd(config); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, etcdStart)
	defer cancel()
	select {
	case <-e.server.Server.ReadyNotify():
	case err := <-e.server.Err():
		return err
	case <-limited.Done():
		return context.Cause(limited)
	}
	e.client, err = kubernetes.New(clientv3.Config{
		Endpoints: []string{"http://" + e.server.Clients[0].Addr().String()},
		Logger:    zap.NewNop(),
	})
	return err
}

// Client returns the client that the servers use, too: for what goes around them, such as
// a compaction.
func (e *Etcd) Client() *clientv3.Client { return e.client.Client }

// Close stops etcd and removes its data. The servers in front of it must be closed before.
func (e *Etcd) Close() {
	if e.client != nil {
		e.client.Close()
	}
	if e.server != nil {
		e.server.Close()
	}
	os.RemoveAll(e.dir)
}
