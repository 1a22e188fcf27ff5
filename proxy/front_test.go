package proxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hookonce/hookonce/proxy"
)

func TestTargetReachesTheUpstreamAsItCame(t *testing.T) {
	for _, target := range []string{
		"/a", "/a/", "/a%2Fb", "/a%2fb", "//a", "//a//b", "/a/./b", "/a/../b", "/a;b=c", "/a?", "/a??", "/a?b=c;d", "/a?b=%zz", "/a?b=c&b=d&",
		"/a?x=|{}", "/a|b", "/a{b}", "/a`b", "/\u00e4", "/a%C3%A4", "/a?\u00e4", "/a:b@c", "/a%20b", "/a%7Eb", "/a\"b", "/[a]", "/a^b", "/a#b",
		"/",
	} {
		t.Run(target, func(t *testing.T) {
			for name, path := range map[string]string{"passed through": "/elsewhere", "delivered": "/"} {
				w := newWire(t)
				h := start(t, func(s *setup) {
					s.address = w.address()
					s.Webhooks = []*proxy.Webhook{hook(t, "default", path)}
					s.Observe = path == "/" // whatever the verdict on the spelling
				})
				conn := h.dial()
				defer conn.Close()
				fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: hook.example\r\nContent-Length: 2\r\n\r\n{}", target)
				r, _ := w.accept()
				if got, want := head(t, r), "POST "+target+" HTTP/1.1\r\n"; !strings.HasPrefix(got, want) {
					t.Errorf("%s: the upstream got %.60q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestTargetIsPutBelowTheUpstreamsBasePath(t *testing.T) {
	w := newWire(t)
	h := start(t, func(s *setup) { s.Upstream = &url.URL{Scheme: "http", Host: w.address(), Path: "/base"} })
	conn := h.dial()
	defer conn.Close()
	fmt.Fprint(conn, "POST /a%2Fb|?x HTTP/1.1\r\nHost: hook.example\r\nContent-Length: 0\r\n\r\n")
	r, _ := w.accept()
	if got := head(t, r); !strings.HasPrefix(got, "POST /base/a%2Fb|?x HTTP/1.1\r\n") {
		t.Errorf("%.60q", got)
	}
}

// passed sends a head and body by hand, and returns the head that reached the
// upstream, as a set of lines.
func passed(t *testing.T, change func(*setup), text string) []string {
	t.Helper()
	w := newWire(t)
	h := start(t, func(s *setup) { s.address = w.address() }, change)
	conn := h.dial()
	defer conn.Close()
	io.WriteString(conn, text)
	r, _ := w.accept()
	lines := strings.Split(strings.TrimSuffix(head(t, r), "\r\n\r\n"), "\r\n")
	return lines
}

func has(lines []string, want string) bool {
	for _, l := range lines {
		if strings.EqualFold(l, want) {
			return true
		}
	}
	return false
}

func named(lines []string, name string) (found []string) {
	for _, l := range lines {
		if k, v, _ := strings.Cut(l, ": "); strings.EqualFold(k, name) {
			found = append(found, v)
		}
	}
	return found
}

// bothWays runs a test for what passes through and for a delivery.
func bothWays(t *testing.T, f func(t *testing.T, path string, body string)) {
	t.Run("passed through", func(t *testing.T) { f(t, "/elsewhere", "{}") })
	t.Run("delivered", func(t *testing.T) { f(t, path, `{"id":"evt_1"}`) })
}

func headOf(path, body string, lines ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: hook.example:8443\r\nX-Signature: %s\r\nContent-Length: %d\r\n%s\r\n%s",
		path, signature(body), len(body), strings.Join(append(lines, ""), "\r\n"), body)
}

func TestHopByHopHeadersStay(t *testing.T) {
	bothWays(t, func(t *testing.T, path, body string) {
		got := passed(t, func(*setup) {}, headOf(path, body, "Connection: keep-alive, X-Hop", "X-Hop: 1", "Keep-Alive: 5", "Proxy-Authorization: Basic x", "Te: gzip", "Proxy-Connection: x"))
		for _, name := range []string{"X-Hop", "Keep-Alive", "Proxy-Authorization", "Te", "Proxy-Connection"} {
			if v := named(got, name); v != nil {
				t.Errorf("%s came through: %q", name, v)
			}
		}
	})
}

func TestHeadersReachTheUpstreamAsTheyCame(t *testing.T) {
	bothWays(t, func(t *testing.T, path, body string) {
		got := passed(t, func(*setup) {}, headOf(path, body, "X-Twice: a", "X-Twice: b", "X-Empty:", "Accept-Encoding: br", "Content-Type: application/json; charset=utf-8", "Cookie: a=b"))
		if v := named(got, "X-Twice"); !cmp.Equal(v, []string{"a", "b"}) {
			t.Errorf("X-Twice: %q", v)
		}
		for _, want := range []string{"X-Empty: ", "Accept-Encoding: br", "Content-Type: application/json; charset=utf-8", "Cookie: a=b", "Host: hook.example:8443"} {
			if !has(got, want) {
				t.Errorf("no %q in %q", want, got)
			}
		}
		if v := named(got, "User-Agent"); v != nil {
			t.Errorf("a User-Agent was made up: %q", v)
		}
	})
}

func TestForwardingHeaders(t *testing.T) {
	came := []string{"Forwarded: for=1.2.3.4", "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Host: first.example", "X-Forwarded-Proto: https", "X-Forwarded-Port: 443"}
	bothWays(t, func(t *testing.T, path, body string) {
		for _, c := range []struct {
			mode string
			came []string
			want []string // name and value
		}{
			{"preserve", came, []string{"Forwarded", "for=1.2.3.4", "X-Forwarded-For", "1.2.3.4", "X-Forwarded-Host", "first.example", "X-Forwarded-Proto", "https", "X-Forwarded-Port", "443"}},
			{"preserve", nil, []string{"Forwarded", "", "X-Forwarded-For", "", "X-Forwarded-Host", "", "X-Forwarded-Proto", ""}},
			{"append", came, []string{"Forwarded", "for=1.2.3.4", "X-Forwarded-For", "1.2.3.4, 127.0.0.1", "X-Forwarded-Host", "first.example", "X-Forwarded-Proto", "https"}},
			{"append", nil, []string{"X-Forwarded-For", "127.0.0.1", "X-Forwarded-Host", "hook.example:8443", "X-Forwarded-Proto", "http"}},
			{"replace", came, []string{"Forwarded", "", "X-Forwarded-For", "127.0.0.1", "X-Forwarded-Host", "hook.example:8443", "X-Forwarded-Proto", "http"}},
		} {
			got := passed(t, func(s *setup) { s.Forwarded = c.mode }, headOf(path, body, c.came...))
			for i := 0; i < len(c.want); i += 2 {
				if v := strings.Join(named(got, c.want[i]), "|"); v != c.want[i+1] {
					t.Errorf("%s with %d headers: %s %q, want %q", c.mode, len(c.came), c.want[i], v, c.want[i+1])
				}
			}
			if !has(got, "Host: hook.example:8443") {
				t.Errorf("%s: the Host has changed", c.mode)
			}
		}
	})
}

func TestOwnHeadersFromOutsideAreRemovedFromDeliveries(t *testing.T) {
	forged := []string{"Hookonce-Prior-Outcome: done", "Hookonce-Key: forged", "Hookonce-Whatever: 1", "Hookonce_Key: forged", "HOOKONCE_prior-outcome: done"}
	got := passed(t, func(*setup) {}, headOf(path, event("evt_1"), forged...))
	var ours []string
	for _, l := range got {
		if strings.HasPrefix(strings.ToLower(l), "hookonce") {
			ours = append(ours, l)
		}
	}
	want := []string{"Hookonce-Attempt: 1", "Hookonce-Key: evt:evt_1", "Hookonce-Prior-Outcome: none"}
	if diff := cmp.Diff(want, ours); diff != "" {
		t.Error(diff)
	}
}

func TestOwnHeadersFromOutsideAreRemovedFromUnclaimedDeliveriesToo(t *testing.T) {
	got := passed(t, func(s *setup) { s.Webhooks[0].Key = keyRule(t, "none") }, headOf(path, event("evt_1"), "Hookonce-Key: forged", "Hookonce_Key: forged"))
	for _, l := range got {
		if strings.HasPrefix(strings.ToLower(l), "hookonce") {
			t.Error(l)
		}
	}
}

func TestOwnHeadersPassThroughElsewhere(t *testing.T) {
	got := passed(t, func(*setup) {}, headOf("/elsewhere", "{}", "Hookonce-Key: theirs"))
	if !has(got, "Hookonce-Key: theirs") {
		t.Errorf("%q", got)
	}
}

func TestIdempotencyKeyIsKept(t *testing.T) {
	h := start(t)
	h.deliver("evt_1", "Idempotency-Key", "theirs")
	h.deliver("evt_2")
	got := h.upstream.requests()
	if a, b := got[0].Header.Get("Idempotency-Key"), got[1].Header.Get("Idempotency-Key"); a != "theirs" || b != "evt:evt_2" {
		t.Errorf("%q, %q", a, b)
	}
}

func TestKeyIsPercentEncodedWhereAHeaderCannotCarryIt(t *testing.T) {
	h := start(t)
	a := h.do(h.request("POST", path, `{"id":"\u00e9 1"}`))
	a.want(t, http.StatusOK, proxy.Forwarded)
	if got := h.upstream.requests()[0].Header.Get("Hookonce-Key"); got != "evt:%C3%A9 1" {
		t.Errorf("Hookonce-Key %q", got)
	}
}

func TestBodyReachesTheUpstreamByteForByte(t *testing.T) {
	body := "{\"id\":\"evt_1\",\r\n \"x\": 1.0, \"y\":\"\\u00e9\"}\x00\xff  "
	h := start(t)
	h.do(h.request("POST", path, body)).want(t, http.StatusOK, proxy.Forwarded)
	if got := h.upstream.requests()[0]; string(got.body) != body || got.ContentLength != int64(len(body)) {
		t.Errorf("%q, length %d", got.body, got.ContentLength)
	}
}

func TestChunkedDeliveryIsForwardedWhole(t *testing.T) {
	h := start(t)
	body := event("evt_1")
	got := h.raw(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: h\r\nX-Signature: %s\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n%x\r\n%s\r\n0\r\nX-Trailer: t\r\n\r\n",
		path, signature(body), len(body), body))
	if !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Fatalf("%q", got)
	}
	if got := h.upstream.requests()[0]; string(got.body) != body {
		t.Errorf("%q", got.body)
	}
}

func TestResponseIsNotChanged(t *testing.T) {
	h := start(t)
	h.upstream.answers(func(w http.ResponseWriter, _ *seen) {
		w.Header().Set("Content-Type", "text/odd")
		w.Header().Set("Content-Encoding", "gzip") // not to be decompressed
		w.Header().Add("Set-Cookie", "a=1")
		w.Header().Add("Set-Cookie", "b=2")
		io.WriteString(w, "<html>not gzip at all")
	})
	for _, a := range []answer{h.deliver("evt_1"), h.do(h.request("POST", "/elsewhere", ""))} {
		if a.header.Get("Content-Type") != "text/odd" || a.body != "<html>not gzip at all" || a.header.Get("Content-Encoding") != "gzip" || len(a.header["Set-Cookie"]) != 2 {
			t.Errorf("%q %v", a.body, a.header)
		}
	}
}

func TestContentTypeIsNotMadeUp(t *testing.T) {
	h := start(t)
	h.upstream.answers(func(w http.ResponseWriter, _ *seen) {
		w.Header()["Content-Type"] = nil
		io.WriteString(w, "<html>of no type")
	})
	for _, a := range []answer{h.deliver("evt_1"), h.do(h.request("POST", "/elsewhere", ""))} {
		if v, ok := a.header["Content-Type"]; ok {
			t.Errorf("%q", v)
		}
	}
}

func TestPassThroughHasNoOutcome(t *testing.T) {
	h := start(t)
	h.upstream.status(http.StatusTeapot)
	a := h.do(h.request("POST", "/elsewhere", "x"))
	if a.status != http.StatusTeapot || a.outcome() != "" {
		t.Errorf("%d %q", a.status, a.outcome())
	}
	if n := h.metric("hookonce_deliveries_total"); n != 0 {
		t.Errorf("%v deliveries", n)
	}
	if n := h.metric("hookonce_passthrough_requests_total", "code", "4xx"); n != 1 {
		t.Errorf("%v passed through", n)
	}
}

func TestPassThroughNeedsNoStore(t *testing.T) {
	h := start(t)
	h.store.fails()
	if a := h.do(h.request("GET", "/", "")); a.status != http.StatusOK {
		t.Errorf("%d", a.status)
	}
}

func TestPassThroughHasNoLimit(t *testing.T) {
	h := start(t, func(s *setup) { s.MaxBody, s.MaxBuffered = 16, 16 })
	body := strings.Repeat("x", 1<<20)
	h.do(h.request("POST", "/elsewhere", body))
	if got := h.upstream.requests()[0].body; len(got) != len(body) {
		t.Errorf("%d bytes came through", len(got))
	}
}

func TestPassThroughWithoutUpstreamIs502(t *testing.T) {
	h := start(t, func(s *setup) { s.address = deadAddress(t) })
	a := h.do(h.request("GET", "/elsewhere", ""))
	if a.status != http.StatusBadGateway || a.header.Get("Content-Type") != "application/problem+json" || strings.Contains(a.body, "127.0.0.1") {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}

func TestRequestStreamsThrough(t *testing.T) {
	lines := make(chan string, 2)
	h := start(t, func(s *setup) {
		s.upstream = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body := bufio.NewScanner(r.Body)
			for body.Scan() {
				lines <- body.Text()
			}
		})
	})
	in, out := io.Pipe()
	r, _ := http.NewRequest("POST", "http://"+h.address+"/elsewhere", in)
	done := make(chan answer, 1)
	go func() { done <- h.do(r) }()
	for _, line := range []string{"one", "two"} { // two is sent only when one has arrived
		io.WriteString(out, line+"\n")
		if got := await(t, lines, line); got != line {
			t.Errorf("%q, want %q", got, line)
		}
	}
	out.Close()
	await(t, done, "the answer")
}

func TestServerSentEventsStreamThrough(t *testing.T) {
	h := start(t)
	g := newGate(t)
	h.upstream.answers(func(w http.ResponseWriter, _ *seen) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-g.c
	})
	response, err := h.client.Get("http://" + h.address + "/push")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	if line != "data: 1\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	g.open()
}

func TestAnswerOfKnownLengthStreamsThrough(t *testing.T) {
	h := start(t)
	g := newGate(t)
	h.upstream.answers(func(w http.ResponseWriter, _ *seen) {
		w.Header().Set("Content-Length", "10")
		io.WriteString(w, "half\n")
		w.(http.Flusher).Flush()
		<-g.c
		io.WriteString(w, "rest\n")
	})
	response, err := h.client.Get("http://" + h.address + "/download")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); line != "half\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	g.open()
}

func TestWebsocketPassesThrough(t *testing.T) {
	w := newWire(t)
	h := start(t, func(s *setup) { s.address = w.address() })
	conn := h.dial()
	defer conn.Close()
	io.WriteString(conn, "GET /push HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nOrigin: http://h\r\nSec-WebSocket-Key: x\r\n\r\n")
	r, c := w.accept()
	if got := head(t, r); !strings.Contains(got, "Upgrade: websocket") {
		t.Fatalf("%q", got)
	}
	io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")
	back := bufio.NewReader(conn)
	conn.SetReadDeadline(time.Now().Add(patience))
	if got := head(t, back); !strings.HasPrefix(got, "HTTP/1.1 101 ") {
		t.Fatalf("%q", got)
	}
	buffer := make([]byte, 5)
	if io.ReadFull(back, buffer); string(buffer) != "hello" {
		t.Errorf("%q", buffer)
	}
	io.WriteString(conn, "world")
	if io.ReadFull(r, buffer); string(buffer) != "world" {
		t.Errorf("%q", buffer)
	}
}

func TestDeliveryUpgradesNothing(t *testing.T) {
	got := passed(t, func(*setup) {}, headOf(path, event("evt_1"), "Connection: Upgrade", "Upgrade: websocket"))
	if named(got, "Upgrade") != nil {
		t.Errorf("%q", got)
	}
}

func TestInformationalResponsesAndTrailersPassThrough(t *testing.T) {
	bothWays(t, func(t *testing.T, path, body string) {
		h := start(t)
		h.upstream.answers(func(w http.ResponseWriter, _ *seen) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("Trailer", "X-Sum")
			io.WriteString(w, "body")
			w.Header().Set("X-Sum", "42")
		})
		var hints []int
		r := h.request("POST", path, body)
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { hints = append(hints, code); return nil },
		}))
		response, err := h.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		if !bytes.Equal(text, []byte("body")) || response.Trailer.Get("X-Sum") != "42" || !cmp.Equal(hints, []int{103}) {
			t.Errorf("%q, trailers %v, 1xx %v", text, response.Trailer, hints)
		}
	})
}

func TestExpectedContinueIsSentByWhoeverReads(t *testing.T) {
	h := start(t)
	conn := h.dial()
	defer conn.Close()
	body := event("evt_1")
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nX-Signature: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n", path, signature(body), len(body))
	r := bufio.NewReader(conn)
	conn.SetReadDeadline(time.Now().Add(patience))
	if got := head(t, r); !strings.HasPrefix(got, "HTTP/1.1 100 ") {
		t.Fatalf("%q", got)
	}
	io.WriteString(conn, body)
	if got := head(t, r); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Fatalf("%q", got)
	}
	if got := h.upstream.requests()[0].Header.Get("Expect"); got != "" {
		t.Errorf("Expect %q came through with a body that is already there", got)
	}
}
