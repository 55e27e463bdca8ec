// Package writelimit ends responses that a client does not read.
//
// A server of net/http, an API server's among them, stays in a write for as long as the
// connection lasts when its client reads no more: also after the watch whose events it
// writes has been ended, for it hears of that only between writes. With [Handler] and
// [Listener] a write has a limit of time: Handler's for a response, Listener's for a
// connection. A server of watches wants both, with a limit somewhat longer than that of
// its cache's stall policy, so that an orderly end comes first.
package writelimit

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// Handler returns a handler that ends a response of which one write or flush takes longer
// than the limit, for the requests that of selects. It must be outside of all other
// filters.
//
// Over HTTP/1.1 the connection ends, over HTTP/2 the stream, so that the other requests on
// the connection go on. What it cannot end is a stream of HTTP/2 whose connection is
// blocked: that takes [Listener]. A handler that takes the connection over (http.Hijacker) is
// to be done with it when it returns: from then on the connection has a deadline.
func Handler(handler http.Handler, limit time.Duration, of func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if !of(request) {
			handler.ServeHTTP(w, request)
			return
		}
		l := newLimited(w, limit)
		defer l.finish()
		handler.ServeHTTP(responsewriter.WrapForHTTP1Or2(l), request)
	})
}

// limited is a response whose writes are limited.
type limited struct {
	http.ResponseWriter
	controller *http.ResponseController
	limit      time.Duration
	timer      *time.Timer // runs while something is written

	mu      sync.Mutex
	writing bool
	began   time.Time
}

func newLimited(w http.ResponseWriter, limit time.Duration) *limited {
	l := &limited{ResponseWriter: w, controller: http.NewResponseController(w), limit: limit}
	l.timer = time.AfterFunc(limit, l.expire)
	l.timer.Stop()
	return l
}

// Unwrap is of responsewriter.UserProvidedDecorator.
func (l *limited) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// Write is of http.ResponseWriter.
func (l *limited) Write(p []byte) (int, error) {
	l.begin()
	defer l.end()
	return l.ResponseWriter.Write(p)
}

// Flush is of http.Flusher.
func (l *limited) Flush() {
	l.begin()
	defer l.end()
	// An error is the next write's, too.
	_ = l.controller.Flush()
}

func (l *limited) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writing, l.began = true, time.Now()
	l.timer.Reset(l.limit)
}

func (l *limited) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writing = false
	l.timer.Stop()
}

// expire ends the write that is under way, if it is the one that took too long: what is
// written after its deadline fails. It holds mu, so that the deadline is not that of the
// connection's next request.
func (l *limited) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writing && time.Since(l.began) >= l.limit {
		_ = l.controller.SetWriteDeadline(time.Unix(1, 0))
	}
}

// finish limits what net/http writes when the handler has returned. Afterwards, net/http
// takes the deadline back.
func (l *limited) finish() { _ = l.controller.SetWriteDeadline(time.Now().Add(l.limit)) }
