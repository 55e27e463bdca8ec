package served

import (
	"net"
	"sync"
	"time"
)

// LimitConnections returns a listener whose connections end when a write takes longer than
// the limit: when the other end does not take a byte for so long, be it stopped or gone. It
// is for the listener below TLS, whose writes are no more than 16 KB, so that a connection
// that is merely slow goes on.
//
// It ends what [LimitWrites] cannot, and every request on the connection with it. A client
// that reads the connection but not the response, as those of HTTP/2 do, is for LimitWrites.
func LimitConnections(of net.Listener, limit time.Duration) net.Listener {
	return &limitedListener{of, limit}
}

type limitedListener struct {
	net.Listener
	limit time.Duration
}

// Accept is of net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &limitedConn{Conn: conn, limit: l.limit}, nil
}

type limitedConn struct {
	net.Conn
	limit time.Duration

	mu   sync.Mutex
	set  time.Time
}

// SetDeadline is of net.Conn.
func (c *limitedConn) SetDeadline(deadline time.Time) error {
	if err := c.SetWriteDeadline(deadline); err != nil {
		return err
	}
	return c.Conn.SetReadDeadline(deadline)
}

// SetWriteDeadline sets a deadline that is kept if it is the earlier one.
func (c *limitedConn) SetWriteDeadline(deadline time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set = deadline
	return c.Conn.SetWriteDeadline(deadline)
}

// Write is of net.Conn.
func (c *limitedConn) Write(p []byte) (int, error) {
	if err := c.arm(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *limitedConn) arm() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	deadline := time.Now().Add(c.limit)
	if !c.set.IsZero() && c.set.Before(deadline) {
		deadline = c.set
	}
	return c.Conn.SetWriteDeadline(deadline)
}
