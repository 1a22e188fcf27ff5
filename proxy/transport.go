package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// NewTransport returns the transport to the upstream: no proxy from the
// environment, nothing decompressed, and connections that count what is
// written on them, which is the evidence of whether a request was sent.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:              nil,
		DisableCompression: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &countedConn{Conn: conn}, nil
		},
		MaxIdleConnsPerHost: 512, // there is one host
		// Node, and so n8n, closes idle connections after 5 s, and when its
		// event loop was blocked, before it looks at what has come meanwhile:
		// such a request has an unknown outcome. Connecting anew is cheap.
		IdleConnTimeout:       time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

// countedConn counts the writes that were begun on a connection.
type countedConn struct {
	net.Conn
	writes atomic.Int64
	ask    atomic.Pointer[func() error]
}

// askFirst makes the next write ask, and fail without a byte where the answer
// is an error.
func (c *countedConn) askFirst(may func() error) { c.ask.Store(&may) }

func (c *countedConn) Write(p []byte) (int, error) {
	if may := c.ask.Swap(nil); may != nil {
		if err := (*may)(); err != nil {
			return 0, err
		}
	}
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// countedBelow finds the counting connection below TLS; nil if there is none.
func countedBelow(conn net.Conn) *countedConn {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	counted, _ := conn.(*countedConn)
	return counted
}
