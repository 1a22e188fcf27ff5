package proxy_test

import (
	"bufio"
	"fmt"

	"net/http"
	"net/http/httptest"
	pathpkg "path"
	"strings"
	"testing"

	"github.com/hookonce/hookonce/proxy"
)

// several is a set of webhooks with exact paths and subtrees.
func several(t testing.TB) func(*setup) {
	return func(s *setup) {
		s.Webhooks = []*proxy.Webhook{
			hook(t, "stripe", "/webhook/stripe"),
			hook(t, "tree", "/hooks/"),
			hook(t, "inner", "/hooks/inner/deep"),
			hook(t, "spaced", "/webhook/a%20b"),
		}
	}
}

func TestRequestsGoToTheWebhookOfTheirPath(t *testing.T) {
	for _, c := range []struct{ target, webhook string }{
		{"/webhook/stripe", "stripe"},
		{"/webhook/stripe?a=b", "stripe"},
		{"/webhook/a%20b", "spaced"},
		{"/hooks/", "tree"},
		{"/hooks/anything", "tree"},
		{"/hooks/a%2Fb", "tree"},
		{"/hooks/a/b", "tree"},
		{"/hooks/inner", "tree"},
		{"/hooks/inner/deep", "inner"}, // the longest path, as in net/http
		{"/webhook/stripes", ""},
		{"/webhook/stripe/more", ""},
		{"/webhook", ""},
		{"/webhook/a%2520b/c", ""},
		{"/", ""},
		{"/api?next=/webhook/stripe", ""},
	} {
		t.Run(c.target, func(t *testing.T) {
			h := start(t, several(t))
			h.do(h.request("POST", c.target, event("evt_1")))
			h.settled()
			for _, name := range []string{"stripe", "tree", "inner", "spaced"} {
				want := 0.0
				if name == c.webhook {
					want = 1
				}
				if got := h.metric("hookonce_deliveries_total", "webhook", name, "outcome", "forwarded"); got != want {
					t.Errorf("%s has %v deliveries, want %v", name, got, want)
				}
			}
			h.runs(1)
		})
	}
}

// spellings are other ways to write the paths of several, which some
// application takes for them.
var spellings = []string{
	"/%77ebhook/stripe", "/webhook/%73tripe", "/webhook/%2573tripe", "/webhook/%252573tripe",
	"//webhook/stripe", "/webhook//stripe", "/webhook/stripe//", "/webhook/stripe/",
	"/./webhook/stripe", "/webhook/./stripe", "/webhook/stripe/.", "/webhook/stripe/x/..",
	"/x/../webhook/stripe", "/webhook/%2e/stripe", "/x/%2e%2e/webhook/stripe", "/webhook%2Fstripe", "/webhook%2fstripe",
	"/Webhook/stripe", "/webhook/STRIPE", `/webhook\stripe`, "/webhook%5Cstripe", "/webhook/stripe;a=b", "/webhook;x/stripe",
	"/webhook/stripe#x", "/webhook/stripe#/../y", "/webhook/stripe/#?a",
	"http:webhook/stripe", "http://elsewhere/webhook/%73tripe",
	"/webhook/a b", "/webhook/A%20b",
	"/hooks", "/Hooks/a", "/hooks//a", "/hooks/./a", "/hooks/../hooks/a", "/hooks/%2e%2e/hooks/a", "/hooks/a//b", "/hooks/a/..",
	"/hooks/%61", "/hooks/a%2fb", `/hooks/a\b`, "/hooks/a%5Cb", "/hooks/a#b", "/hooks/a|b", "/hooks/\u00e4",
	"/hooks/inner/Deep", "/hooks/inner/%64eep", "/hooks/inner/deep/",
	"//x/webhook/stripe", "///x/webhook/stripe", `/\x/webhook/stripe`, "//x:1/webhook/%73tripe?y", "//a@b/hooks/a",
	"/hooks/a/", "/hooks/..%2Fwebhook%2Fstripe", "/hooks/..%2F..%2Fadmin",
}

func TestOtherSpellingsOfAWebhooksPathAreRefused(t *testing.T) {
	h := start(t, several(t))
	for _, target := range spellings {
		if strings.Contains(target, " ") {
			continue // no request target at all
		}
		for _, method := range []string{"POST", "GET"} {
			body := event("evt_1")
			got := h.raw(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: hook.example\r\nX-Signature: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
				method, target, signature(body), len(body), body))
			if !strings.HasPrefix(got, "HTTP/1.1 400 ") {
				t.Errorf("%s %s: %.40q, want 400", method, target, got)
			}
			if len(h.upstream.requests()) > 0 {
				t.Fatalf("%s %s reached the application as %s", method, target, h.upstream.requests()[0].RequestURI)
			}
		}
	}
}

func TestAbsoluteTargetIsVerifiedLikeItsPath(t *testing.T) {
	h := start(t, several(t))
	for _, target := range []string{"http://elsewhere/webhook/stripe", "HTTP://elsewhere:80/webhook/stripe", "http:/webhook/stripe", "x:/webhook/stripe"} {
		got := h.raw("POST " + target + " HTTP/1.1\r\nHost: hook.example\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
		if !strings.HasPrefix(got, "HTTP/1.1 401 ") {
			t.Errorf("%s: %.40q, want 401", target, got)
		}
	}
	h.runs(0)
}

func TestMisspeltHandshakeIsRefusedToo(t *testing.T) {
	h := start(t, func(s *setup) {
		s.Webhooks = []*proxy.Webhook{provided(t, "asana", "/webhook/asana", "asana", ""), provided(t, "woo", "/webhook/woo", "woocommerce", secret)}
		s.Webhooks[0].OpenHandshake = true
	})
	h.do(h.request("POST", "/Webhook/asana", "{}", "X-Hook-Secret", "abc")).want(t, http.StatusBadRequest, proxy.BadRequest)
	h.do(h.request("POST", "/Webhook/woo", "webhook_id=1", "Content-Type", "application/x-www-form-urlencoded")).want(t, http.StatusBadRequest, proxy.BadRequest)
	h.runs(0)
}

func TestMisspeltPathIsTold(t *testing.T) {
	h := start(t)
	a := h.do(h.request("POST", "/Webhook/pay", event("evt_1")))
	a.want(t, http.StatusBadRequest, proxy.BadRequest)
	if !strings.Contains(a.body, "spelling") {
		t.Errorf("it was not told so: %s", a.body)
	}
}

func TestEveryOtherMethodIsADelivery(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "PROPFIND", "post", "BREW"} {
		h := start(t)
		h.do(h.request(method, path, event("evt_1"))).want(t, http.StatusOK, proxy.Forwarded)
		if got := h.upstream.requests()[0].Method; got != method {
			t.Errorf("%s became %s", method, got)
		}
		r := h.request(method, path, event("evt_2"), "X-Signature", "00")
		h.do(r).want(t, http.StatusUnauthorized, proxy.InvalidSignature)
	}
}

func TestReadsOfAWebhooksPathPassThrough(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
		h := start(t)
		a := h.do(h.request(method, path+"?hub.challenge=1", "", "X-HTTP-Method-Override", "POST", "X-HTTP-Method", "PUT", "X-Method-Override", "DELETE", "X-Kept", "yes"))
		if a.status != http.StatusOK || a.outcome() != "" {
			t.Errorf("%s: %d %q", method, a.status, a.outcome())
		}
		got := h.upstream.requests()[0]
		for _, name := range []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"} {
			if got.Header.Get(name) != "" {
				t.Errorf("%s: %s came through: it would make a delivery of it", method, name)
			}
		}
		if got.Header.Get("X-Kept") != "yes" || got.RequestURI != path+"?hub.challenge=1" {
			t.Errorf("%s: %s %v", method, got.RequestURI, got.Header)
		}
		if n := h.metric("hookonce_passthrough_requests_total", "code", "2xx"); n != 1 {
			t.Errorf("%s: %v passed through", method, n)
		}
	}
}

func TestReadsOfAWebhooksPathCanBeRejected(t *testing.T) {
	h := start(t, func(s *setup) { s.Webhooks[0].RejectReads = true })
	for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
		a := h.do(h.request(method, path, ""))
		a.want(t, http.StatusMethodNotAllowed, proxy.BadRequest)
		if a.header.Get("Allow") != "POST" {
			t.Errorf("Allow %q", a.header.Get("Allow"))
		}
	}
	h.runs(0)
}

func TestUnmatchedCanBeRejected(t *testing.T) {
	h := start(t, func(s *setup) { s.RejectUnmatched = true })
	a := h.do(h.request("GET", "/elsewhere", ""))
	if a.status != http.StatusNotFound || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %v", a.status, a.header)
	}
	h.runs(0)
	if a := h.do(h.request("GET", path, "")); a.status != http.StatusOK {
		t.Errorf("GET of a webhook's path: %d", a.status)
	}
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Forwarded)
}

// FuzzMatch sends any target at a webhook. Whatever an application may take
// for the webhook's path must not come through unverified.
func FuzzMatch(f *testing.F) {
	for _, s := range spellings {
		f.Add(s)
	}
	for _, s := range []string{"/", "*", "/webhook/stripe", "/a?b", "/%", "/webhook/stripe?", "http://h", "//", "/\u2126", "CONNECT", ""} {
		f.Add(s)
	}
	h := start(f, several(f))
	f.Fuzz(func(t *testing.T, target string) {
		for _, method := range []string{"POST", "CONNECT"} {
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: hook.example\r\nContent-Length: 0\r\n\r\n")))
			if err != nil || r.Method != method {
				return
			}
			w := httptest.NewRecorder()
			h.handler.ServeHTTP(w, r) // unsigned
			select {
			case got := <-h.upstream.arrived:
				if taken := application(got.RequestURI); taken {
					t.Errorf("%s %q reached the application unverified, as %q", method, target, got.RequestURI)
				}
			default:
			}
		}
	})
}

// application is how an application may read a target: what net/url makes of
// it, cleaned, in any case, without matrix parameters.
func application(target string) (webhook bool) {
	u, err := http.ReadRequest(bufio.NewReader(strings.NewReader("POST " + target + " HTTP/1.1\r\nHost: h\r\n\r\n")))
	if err != nil {
		return false
	}
	p, _, _ := strings.Cut(u.URL.Path, "#")
	for _, way := range []string{p, strings.ReplaceAll(p, `\`, "/"), strings.ToLower(p)} {
		way = pathpkg.Clean("/" + way)
		if way == "/webhook/stripe" || way == "/webhook/a b" || way == "/hooks" || strings.HasPrefix(way, "/hooks/") {
			return true
		}
	}
	return false
}

func TestFoldedTargetsNeverPanic(t *testing.T) {
	h := start(t)
	for _, head := range []string{"CONNECT  HTTP/1.1", "CONNECT a:1 HTTP/1.1", "POST * HTTP/1.1", "OPTIONS * HTTP/1.1", "POST http://h HTTP/1.1", "POST x: HTTP/1.1", "POST http:? HTTP/1.1"} {
		got := h.raw(head + "\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 ") {
			t.Errorf("%q: %q", head, got)
		}
	}
	if strings.Contains(h.logs.text(), "panic") {
		t.Error(h.logs.text())
	}
}
