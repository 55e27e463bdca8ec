package writelimit

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// Listener returns a listener whose connections end when a write takes longer than
// the limit: when the other end does not take a byte for so long, be it stopped or gone. It
// is for the listener below TLS, whose writes are no more than 16 KB, so that a connection
// that is merely slow goes on.
//
// It ends what [Handler] cannot, and every request on the connection with it. A client that
// reads the connection but not the response, as those of HTTP/2 do, is for Handler.
func Listener(of net.Listener, limit time.Duration) net.Listener {
	return &listener{Listener: of, limit: limit}
}

type listener struct {
	net.Listener
	limit time.Duration
}

// Accept is of net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: accepted, limit: l.limit}, nil
}

type conn struct {
	net.Conn
	limit time.Duration

	mu  sync.Mutex
	set time.Time
}

// SetDeadline is of net.Conn.
func (c *conn) SetDeadline(deadline time.Time) error {
	if err := c.SetWriteDeadline(deadline); err != nil {
		return err
	}
	return c.Conn.SetReadDeadline(deadline)
}

// SetWriteDeadline sets a deadline that is kept if it is the earlier one.
func (c *conn) SetWriteDeadline(deadline time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set = deadline
	return c.Conn.SetWriteDeadline(deadline)
}

// Write is of net.Conn. A connection whose write took too long is closed: TLS cannot go on
// with it, and HTTP/2 would go on reading.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.arm(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.Conn.Close()
	}
	return n, err
}

func (c *conn) arm() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	deadline := time.Now().Add(c.limit)
	if !c.set.IsZero() && c.set.Before(deadline) {
		deadline = c.set
	}
	return c.Conn.SetWriteDeadline(deadline)
}
