package proxy_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hookonce/hookonce/proxy"
	"github.com/hookonce/hookonce/store"
)

func TestBodyAtTheLimitIsTaken(t *testing.T) {
	body := event("evt_1")
	h := start(t, func(s *setup) { s.MaxBody = int64(len(body)) })
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Forwarded)
	h.do(h.request("POST", path, body+" ")).want(t, http.StatusRequestEntityTooLarge, proxy.TooLarge)
	h.runs(1)
}

func TestAnnouncedBodyTooLargeIsRefusedUnread(t *testing.T) {
	h := start(t, func(s *setup) { s.MaxBody = 100 })
	got := h.raw("POST " + path + " HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\nConnection: close\r\n\r\n") // nothing of it is sent
	if !strings.HasPrefix(got, "HTTP/1.1 413 ") || !strings.Contains(got, "Hookonce-Outcome: too_large") {
		t.Errorf("%q", got)
	}
}

func TestChunkedBodyTooLargeIsRefused(t *testing.T) {
	h := start(t, func(s *setup) { s.MaxBody = 100 })
	got := h.raw("POST " + path + " HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n65\r\n" + strings.Repeat("x", 101) + "\r\n0\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 413 ") {
		t.Errorf("%q", got)
	}
	h.runs(0)
}

func TestLargeBodyIsForwardedWhole(t *testing.T) {
	h := start(t, func(s *setup) { s.MaxBody = 4 << 20 })
	body := `{"id":"evt_1","x":"` + strings.Repeat("0123456789abcdef", 200_000) + `"}`
	h.do(h.request("POST", path, body)).want(t, http.StatusOK, proxy.Forwarded)
	if string(h.upstream.requests()[0].body) != body {
		t.Error("the body has changed")
	}
}

func TestBodyCutOffIsRefused(t *testing.T) {
	h := start(t)
	conn := h.dial()
	defer conn.Close()
	io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{\"id\":")
	conn.(*net.TCPConn).CloseWrite()
	conn.SetReadDeadline(time.Now().Add(patience))
	got, _ := io.ReadAll(conn)
	if !strings.HasPrefix(string(got), "HTTP/1.1 400 ") || !strings.Contains(string(got), "Hookonce-Outcome: bad_request") {
		t.Errorf("%q", got)
	}
	h.runs(0)
}

func TestMalformedChunkIsRefused(t *testing.T) {
	h := start(t)
	got := h.raw("POST " + path + " HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, "Hookonce-Outcome: bad_request") || !strings.Contains(got, "Connection: close") {
		t.Errorf("%q", got)
	}
	h.runs(0)
}

func TestSlowBodyIsRefused408(t *testing.T) {
	h := start(t, func(s *setup) { s.ReadTimeout = 50 * time.Millisecond })
	got := h.raw("POST " + path + " HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{\"id\":")
	if !strings.HasPrefix(got, "HTTP/1.1 408 ") || !strings.Contains(got, "Hookonce-Outcome: bad_request") {
		t.Errorf("%q", got)
	}
	h.runs(0)
}

func TestRefusedBodyThatStallsDoesNotHoldItsConnection(t *testing.T) {
	for name, request := range map[string]string{
		"too slow":              "POST " + path + " HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{\"id\":",
		"too large, as chunked": "POST " + path + " HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n28\r\n" + strings.Repeat("x", 40) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, func(s *setup) { s.ReadTimeout, s.MaxBody = 50*time.Millisecond, 30 })
			conn := h.dial()
			defer conn.Close()
			io.WriteString(conn, strings.Replace(request, "Length: 100", "Length: 20", 1))
			conn.SetReadDeadline(time.Now().Add(patience))
			got, err := io.ReadAll(conn)
			if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 4") {
				t.Errorf("%q, %v: the connection is still open", got, err)
			}
		})
	}
}

func TestReadTimeoutEndsWithTheBody(t *testing.T) {
	h := start(t, func(s *setup) { s.ReadTimeout = 100 * time.Millisecond })
	g := newGate(t)
	h.upstream.held(g, http.StatusOK)
	first := h.begin("evt_1")
	await(t, h.upstream.arrived, "the first delivery")
	second := h.begin("evt_1") // would be taken for gone
	h.inFlight(2)
	await(t, time.After(200*time.Millisecond), "the end of the read timeout")
	g.open()
	await(t, first, "the first answer").want(t, http.StatusOK, proxy.Forwarded)
	await(t, second, "the second answer").want(t, http.StatusOK, proxy.Duplicate)
}

func TestSenderThatLeavesWhileSendingIsGone(t *testing.T) {
	h := start(t)
	conn := h.dial()
	io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n")
	conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 8)); err != nil { // it waits for the body
		t.Fatal(err)
	}
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
	if line := h.logged(proxy.ClientGone); line["status"] != float64(499) {
		t.Errorf("status %v", line["status"])
	}
	if n := h.store.count("claim"); n != 0 {
		t.Errorf("%d claims", n)
	}
}

func TestBudgetForAllBodiesIsRefused503AndGivenBack(t *testing.T) {
	body := event("evt_1") + strings.Repeat(" ", 1000)
	h := start(t, func(s *setup) { s.MaxBuffered = int64(len(body)) + 10 })
	conn := h.dial()
	defer conn.Close()
	text := headOf(path, body)
	if _, err := io.WriteString(conn, text[:len(text)-1]); err != nil { // the last byte is missing: it is being read
		t.Fatal(err)
	}
	h.inFlight(1)
	a := h.do(h.request("POST", path, event("evt_2")))
	for a.outcome() == "forwarded" { // the first may not have begun to read
		a = h.do(h.request("POST", path, event("evt_2")+strings.Repeat(" ", len(h.upstream.requests()))))
	}
	a.want(t, http.StatusServiceUnavailable, proxy.Overloaded)
	if a.header.Get("Retry-After") != "5" {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
	io.WriteString(conn, text[len(text)-1:])
	h.inFlight(0)
	h.do(h.request("POST", path, event("evt_3"))).want(t, http.StatusOK, proxy.Forwarded)
}

func TestBudgetIsGivenBackOnceTheUpstreamHasTheBody(t *testing.T) {
	padded := func(id string) string { return event(id) + strings.Repeat(" ", 32<<10) }
	h := start(t, func(s *setup) { s.MaxBuffered = int64(len(padded("evt_1"))) })
	g := newGate(t)
	h.upstream.answers(func(_ http.ResponseWriter, s *seen) {
		if strings.Contains(string(s.body), "evt_1") {
			<-g.c
		}
	})
	r := h.request("POST", path, padded("evt_1"))
	first := make(chan answer, 1)
	go func() { first <- h.do(r) }()
	await(t, h.upstream.arrived, "the first delivery")
	a := answer{header: http.Header{"Hookonce-Outcome": {"overloaded"}}}
	for i := 0; i < 1000 && a.outcome() == "overloaded"; i++ { // its last packet arrives a moment before the writer knows
		a = h.do(h.request("POST", path, padded("evt_2")))
	}
	a.want(t, http.StatusOK, proxy.Forwarded)
	select {
	case <-first:
		t.Error("the first has ended")
	default:
	}
	g.open()
	await(t, first, "the first answer")
}

func TestBudgetIsGivenBackWhateverTheEnd(t *testing.T) {
	body := event("evt_0")
	h := start(t, func(s *setup) { s.MaxBuffered = int64(len(body)) })
	h.upstream.status(http.StatusInternalServerError)
	for range 3 {
		h.do(h.request("POST", path, body, "X-Signature", "00")).want(t, http.StatusUnauthorized, proxy.InvalidSignature)
		h.do(h.request("POST", path, body)).want(t, http.StatusInternalServerError, proxy.Released)
	}
	h.upstream.status(http.StatusOK)
	for i, outcome := range []proxy.Outcome{proxy.Forwarded, proxy.Duplicate, proxy.Duplicate} {
		if a := h.do(h.request("POST", path, body)); a.outcome() != string(outcome) {
			t.Errorf("%d: %s", i, a.outcome())
		}
	}
}

func TestLargeAnnouncementTakesNoBudget(t *testing.T) {
	h := start(t, func(s *setup) { s.MaxBody, s.MaxBuffered = 1<<20, 1<<20 })
	for range 4 {
		conn := h.dial()
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n{", path, 1<<20)
	}
	h.inFlight(4)
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Forwarded)
	h.known("evt:evt_1", store.Done)
}
