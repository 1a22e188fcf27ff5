package proxy

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"
)

// reverseProxy is httputil's, with this house's ways: everything reaches the
// upstream as it came.
func (h *Handler) reverseProxy(transport http.RoundTripper, modify func(*http.Response) error,
	failed func(http.ResponseWriter, *http.Request, error)) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:        h.rewrite,
		Transport:      transport,
		FlushInterval:  flushWithin,
		BufferPool:     &bufferPool{},
		ErrorLog:       slog.NewLogLogger(h.Log.Handler(), slog.LevelDebug),
		ModifyResponse: modify,
		ErrorHandler:   failed,
	}
}

// flushWithin bounds how long a part of an answer may wait for more of it.
// Events, and answers of unknown length, httputil passes on at once by itself;
// to flush all others at once, too, would cost a tenth of the throughput.
const flushWithin = 10 * time.Millisecond

// rewrite points a request at the upstream and puts back what httputil takes
// out or tidies up: a sidecar is no hop that the application was set up for.
func (h *Handler) rewrite(p *httputil.ProxyRequest) {
	out := p.Out
	out.URL.Scheme, out.URL.Host = h.Upstream.Scheme, h.Upstream.Host
	h.setTarget(out.URL, p.In.RequestURI)
	if h.Forwarded != "replace" {
		for _, name := range forwardingHeaders {
			if values, ok := p.In.Header[name]; ok {
				out.Header[name] = values
			}
		}
	}
	switch h.Forwarded {
	case "replace":
		for name := range out.Header {
			if strings.HasPrefix(name, "X-Forwarded-") {
				out.Header.Del(name)
			}
		}
		p.SetXForwarded()
	case "append":
		p.SetXForwarded()
		for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} { // the first hop's word counts
			if values, ok := p.In.Header[name]; ok {
				out.Header[name] = values
			}
		}
	}
	if a := attemptOf(p.In); a != nil {
		a.prepare(out)
	}
}

var forwardingHeaders = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// setTarget makes u the raw target as it came over the wire, below the
// upstream's base path. net/url would escape some bytes anew; Opaque carries
// them as they are, except that it cannot begin with two slashes.
func (h *Handler) setTarget(u *url.URL, target string) {
	rawPath, rawQuery := splitTarget(target)
	rawPath = h.Upstream.EscapedPath() + rawPath
	u.RawQuery = rawQuery
	if plain, err := url.PathUnescape(rawPath); err == nil {
		u.Path, u.RawPath = plain, rawPath
	}
	if u.EscapedPath() != rawPath && (len(rawPath) < 2 || rawPath[1] != '/') {
		u.Opaque = rawPath
	}
}

// passThrough lets a request through that is no delivery.
func (h *Handler) passThrough(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		h.refuse(w, http.StatusMethodNotAllowed, "This is no forward proxy.")
		return
	}
	keepContentType(w)
	defer flushBroken(w)
	h.passthrough.ServeHTTP(w, r)
}

// flushBroken sends what there is of an answer that broke off, its status at
// least: httputil panics then (http.ErrAbortHandler), and net/http would drop
// what it has not sent yet.
func flushBroken(w http.ResponseWriter) {
	if fault := recover(); fault != nil {
		http.NewResponseController(w).Flush()
		panic(fault)
	}
}

func (h *Handler) passed(response *http.Response) error {
	if response.StatusCode < http.StatusContinue {
		return errNoAnswer
	}
	h.Metrics.PassedThrough(response.StatusCode)
	return nil
}

func (h *Handler) passFailed(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		h.Metrics.PassedThrough(statusClientGone)
		return
	}
	h.Log.Warn("passing through failed", "method", r.Method, "error", withoutQuotes(err).Error())
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		h.refuse(w, http.StatusRequestEntityTooLarge, "The body is too large.")
		return
	}
	h.refuse(w, http.StatusBadGateway, "The application could not be reached.")
}

// keepContentType keeps net/http from guessing a type where the upstream gave
// none.
func keepContentType(w http.ResponseWriter) { w.Header()["Content-Type"] = nil }

// bufferPool saves httputil a buffer for each answer.
type bufferPool struct{ pool sync.Pool }

func (b *bufferPool) Get() []byte {
	if buffer, ok := b.pool.Get().(*[32 << 10]byte); ok {
		return buffer[:]
	}
	return make([]byte, 32<<10)
}

func (b *bufferPool) Put(buffer []byte) { b.pool.Put((*[32 << 10]byte)(buffer)) }
