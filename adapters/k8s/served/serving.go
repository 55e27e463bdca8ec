package served

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/watchcache/watchcache/adapters/k8s/writelimit"
)

// shutdownTimeout is not waited for: the connections are closed, and so idle.
const shutdownTimeout = time.Minute

// serving is apiserver's secure serving, with an end that waits for all requests.
type serving struct {
	listener *trackingListener
	requests *tracked
	stop     chan struct{}
	ended    []<-chan struct{}
}

func serve(ctx context.Context, handler http.Handler, cert dynamiccertificates.CertKeyContentProvider, opts *Options) (*serving, error) {
	address := opts.Address
	if address == "" {
		address = "127.0.0.1:0"
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	s := &serving{
		listener: &trackingListener{Listener: listener, buffer: opts.WriteBuffer, open: map[net.Conn]struct{}{}},
		requests: &tracked{handler: handler},
		stop:     make(chan struct{}),
	}
	below := net.Listener(s.listener)
	if opts.WriteLimit > 0 {
		below = writelimit.Listener(below, opts.WriteLimit)
	}
	info := server.SecureServingInfo{Listener: below, Cert: cert}
	shutdown, stopped, err := info.Serve(s.requests, shutdownTimeout, s.stop)
	if err != nil {
		listener.Close()
		return nil, err
	}
	s.ended = []<-chan struct{}{shutdown, stopped}
	return s, nil
}

func (s *serving) close() {
	close(s.stop)
	s.listener.closeAll()
	for _, ended := range s.ended {
		<-ended
	}
	s.requests.wait()
}

// trackingListener knows its connections, to close them in the end.
type trackingListener struct {
	net.Listener
	buffer int

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{}
}

// Accept is of net.Listener.
func (l *trackingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok && l.buffer > 0 {
		if err := tcp.SetWriteBuffer(l.buffer); err != nil {
			conn.Close()
			return nil, err
		}
	}
	t := &trackedConn{conn, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	l.open[t] = struct{}{}
	return t, nil
}

func (l *trackingListener) closeAll() {
	l.mu.Lock()
	l.closed = true
	open := make([]net.Conn, 0, len(l.open))
	for conn := range l.open {
		open = append(open, conn)
	}
	l.mu.Unlock()
	for _, conn := range open {
		conn.Close()
	}
}

type trackedConn struct {
	net.Conn
	listener *trackingListener
}

// Close is of net.Conn.
func (c *trackedConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// tracked is a handler whose requests can be waited for.
type tracked struct {
	handler http.Handler

	mu       sync.Mutex
	closed   bool
	requests sync.WaitGroup
}

// ServeHTTP is of http.Handler.
func (t *tracked) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		http.Error(w, "the server is being closed", http.StatusServiceUnavailable)
		return
	}
	t.requests.Add(1)
	t.mu.Unlock()
	defer t.requests.Done()
	t.handler.ServeHTTP(w, request)
}

// wait waits for all requests, and refuses those that come later.
func (t *tracked) wait() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.requests.Wait()
}
