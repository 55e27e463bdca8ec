package writelimit_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchcache/watchcache/adapters/k8s/writelimit"
)

// The tests here are over pipes, which have no buffer, in a bubble's time.

// pipes is a listener of one connection.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func newPipes() (*pipes, net.Conn) {
	client, conn := net.Pipe()
	p := &pipes{make(chan net.Conn, 1), make(chan struct{})}
	p.accepted <- conn
	return p, client
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// TestTheLastWriteIsLimited: what net/http writes when the handler has returned.
func TestTheLastWriteIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, client := newPipes()
		defer client.Close()
		answers := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") })
		closed := make(chan struct{})
		server := &http.Server{
			Handler: writelimit.Handler(answers, time.Minute, func(*http.Request) bool { return true }),
			ConnState: func(_ net.Conn, state http.ConnState) {
				if state == http.StateClosed {
					close(closed)
				}
			},
		}
		go server.Serve(l)
		defer server.Close()
		if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		<-closed // nothing is read
		if took := time.Since(begun); took != time.Minute {
			t.Errorf("it was closed after %v", took)
		}
	})
}

// TestConnection: a write has the listener's limit, or its deadline if that is sooner, and
// a connection whose write took too long is closed; one that only waits is not.
func TestConnection(t *testing.T) {
	const limit = time.Minute
	for _, c := range []struct {
		name string
		set  func(net.Conn, time.Time) error
		at   time.Duration // the deadline that is set; 0: none
		want time.Duration
	}{
		{"limit", nil, 0, limit},
		{"sooner", net.Conn.SetWriteDeadline, limit / 2, limit / 2},
		{"sooner, of both", net.Conn.SetDeadline, limit / 3, limit / 3},
		{"later", net.Conn.SetWriteDeadline, 2 * limit, limit},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, client := newPipes()
				defer client.Close()
				conn, err := writelimit.Listener(l, limit).Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				echo := make([]byte, 1)
				go client.Read(echo)
				if _, err := conn.Write([]byte("a")); err != nil {
					t.Fatalf("a write that is read: %v", err)
				}
				time.Sleep(10 * limit) // nothing is written meanwhile
				begun := time.Now()
				if c.set != nil {
					if err := c.set(conn, begun.Add(c.at)); err != nil {
						t.Fatal(err)
					}
				}
				_, err = conn.Write([]byte("b"))
				if took := time.Since(begun); !errors.Is(err, os.ErrDeadlineExceeded) || took != c.want {
					t.Errorf("a write that is not read ends after %v, with %v", took, err)
				}
				if _, err := client.Write([]byte("c")); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("the connection is still there: %v", err)
				}
			})
		})
	}
}
