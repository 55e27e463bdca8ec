package served

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// LimitWrites returns a handler that ends a response of which one write or flush takes
// longer than the limit, for the requests that of selects. It is for the watches of an API
// server, whose handler otherwise stays in a write to a client that does not read, for as
// long as the connection lasts: also after its watch has been ended, of which it would
// hear only afterwards. It must be outside of all other filters.
//
// Over HTTP/1.1 the connection ends, over HTTP/2 the stream, so that the other requests on
// the connection go on. What it cannot end is a stream of HTTP/2 whose connection is
// blocked: that takes [LimitConnections].
func LimitWrites(handler http.Handler, limit time.Duration, of func(*http.Request) bool) http.Handler {
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
	l.writing = true
	l.timer.Reset(l.limit)
}

func (l *limited) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writing = false
	l.timer.Stop()
}

// expire ends the write that is under way: one whose deadline is over returns. That there
// is one is why it holds mu: a deadline after the last would be the next request's.
func (l *limited) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writing {
		_ = l.controller.SetWriteDeadline(time.Unix(1, 0))
	}
}

// finish limits what net/http writes when the handler has returned. Afterwards, net/http
// takes the deadline back.
func (l *limited) finish() { _ = l.controller.SetWriteDeadline(time.Now().Add(l.limit)) }
