package served

import (
	"context"
	"net"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
)

// ClientConfig returns what a client of client-go needs: over HTTP/2, as is the default
// there, or else over HTTP/1.1. It is the caller's to change. There is no limit to the
// rate of requests.
func (s *Server) ClientConfig(http2 bool) *rest.Config {
	protocol := "http/1.1"
	if http2 {
		protocol = "h2"
	}
	return &rest.Config{
		Host:  "https://" + s.Address(),
		QPS:   -1,
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
		TLSClientConfig: rest.TLSClientConfig{
			CAData:     s.cert,
			NextProtos: []string{protocol},
		},
	}
}

// SmallBuffers makes a client's buffers small: that of its sockets and that of its streams
// in HTTP/2, which are megabytes otherwise. The server notices soon, then, that the client
// does not read. Each client that is made from the config has its own connections.
func SmallBuffers(config *rest.Config, bytes int) {
	dialer := &net.Dialer{}
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
			err = tcp.SetReadBuffer(bytes)
		}
		return conn, err
	}
	config.Wrap(func(transport http.RoundTripper) http.RoundTripper {
		below := transport
		for {
			wrapper, ok := below.(interface{ WrappedRoundTripper() http.RoundTripper })
			if !ok {
				break
			}
			below = wrapper.WrappedRoundTripper()
		}
		if t, ok := below.(*http.Transport); ok {
			t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: bytes}
		}
		return transport
	})
}
