package writelimit_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/watchcache/watchcache"
	"github.com/watchcache/watchcache/adapters/k8s/served"
	"github.com/watchcache/watchcache/adapters/k8s/store"
	"github.com/watchcache/watchcache/adapters/k8s/writelimit"
)

const (
	// within is how long tests wait for what must happen.
	within      = 30 * time.Second
	smallBuffer = 32 << 10
	limit       = 500 * time.Millisecond
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWatchesEnd: a watch ends whose client does not read, by the limit of its writes
// alone, where the client's process goes on and where it does not; a request beside it,
// on the same connection, goes on where its connection does.
func TestWatchesEnd(t *testing.T) {
	s, err := served.Start(t.Context(), served.Options{
		WriteLimit:  limit,
		WriteBuffer: smallBuffer,
		Store: func(c *store.Config) {
			c.Stall = watchcache.Evict{StallLimits: watchcache.StallLimits{InitialIdle: watchcache.NoLimit}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fill(t, s)
	for _, http2 := range []bool{false, true} {
		for _, frozen := range []bool{false, true} {
			t.Run(fmt.Sprintf("http2=%t/frozen=%t", http2, frozen), func(t *testing.T) { limited(t, s, http2, frozen) })
		}
	}
}

func limited(t *testing.T, s *served.Server, http2, frozen bool) {
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	config := s.ClientConfig(http2)
	served.SmallBuffers(config, smallBuffer)
	gate := &gate{open: make(chan struct{})}
	var dials atomic.Int64
	dial := config.Dial
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		conn, err := dial(ctx, network, address)
		return &gated{conn, gate}, err
	}
	if frozen { // with the streams' large buffers, it is the connection that is full
		config.WrapTransport = nil
	}
	of, err := typed.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c := of.ConfigMaps("default")
	beside, err := c.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=0"})
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Stop()
	<-beside.ResultChan()
	began := time.Now()
	w, err := c.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	defer close(gate.open) // Stop, too, waits for a connection that is stopped
	<-w.ResultChan()
	gate.closed.Store(frozen)
	left := 1 // the one beside
	if frozen && http2 {
		left = 0
	}
	until(t, "the watch to end", func() bool { return s.Store().CacheStats().Watchers == left })
	if took := time.Since(began); took < limit {
		t.Errorf("it ended after %v", took)
	}
	if frozen {
		return
	}
	if _, err := c.Update(ctx, configMap("0", t.Name()), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if ev := <-beside.ResultChan(); ev.Object == nil {
		t.Errorf("the watch beside has ended, too")
	}
	if dialed := dials.Load(); http2 && dialed != 1 {
		t.Errorf("there were %d connections", dialed)
	}
	beside.Stop()
	until(t, "the watch beside to end", func() bool { return s.Store().CacheStats().Watchers == 0 })
}

// fill creates a megabyte of objects.
func fill(t *testing.T, s *served.Server) {
	t.Helper()
	c, err := typed.NewForConfig(s.ClientConfig(true))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if _, err := c.ConfigMaps("default").Create(t.Context(), configMap(fmt.Sprint(i), strings.Repeat("x", 10<<10)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}
}

func until(t *testing.T, what string, happens func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); !happens(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after %v", what, within)
		}
	}
}

// TestTheNextRequestHasItsOwn: what a response was limited by is gone when another follows
// it on the connection, however late.
func TestTheNextRequestHasItsOwn(t *testing.T) {
	const limit = 20 * time.Millisecond
	for _, http2 := range []bool{false, true} {
		all := func(*http.Request) bool { return true }
		answers := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") })
		server := httptest.NewUnstartedServer(writelimit.Handler(answers, limit, all))
		var connections atomic.Int64
		server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		}
		server.EnableHTTP2 = http2
		server.StartTLS()
		for range 3 {
			response, err := server.Client().Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil || string(body) != "done" || response.ProtoAtLeast(2, 0) != http2 {
				t.Errorf("%s: %q, %v", response.Proto, body, err)
			}
			<-time.After(3 * limit)
		}
		server.Close()
		if n := connections.Load(); n != 1 {
			t.Errorf("http2=%t: %d connections", http2, n)
		}
	}
}

// gate is closed for a process that is stopped.
type gate struct {
	closed atomic.Bool
	open   chan struct{} // closed in the end
}

// gated is a connection that is not read while its gate is closed.
type gated struct {
	net.Conn
	gate *gate
}

func (g *gated) Read(p []byte) (int, error) {
	if g.gate.closed.Load() {
		<-g.gate.open
	}
	return g.Conn.Read(p)
}
