package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/hookonce/hookonce/proxy"
	"github.com/hookonce/hookonce/proxy/metrics"
	"github.com/hookonce/hookonce/proxy/webhook"
	"github.com/hookonce/hookonce/store"
	"github.com/hookonce/hookonce/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to come. Nothing that passes
// waits for it.
const patience = 20 * time.Second

const (
	path   = "/webhook/pay"
	secret = "whsec_never-to-be-seen"
)

// harness is hookonce on a port of its own, between a client and an upstream
// that the test controls, on the embedded store.
type harness struct {
	t        testing.TB
	address  string // of the proxy, host:port
	upstream *upstream
	store    *injector
	file     string // of the store
	logs     *logs
	registry *prometheus.Registry
	handler  *proxy.Handler
	client   *http.Client
}

// setup is what a test may change before everything starts.
type setup struct {
	proxy.Config
	options  store.Options
	upstream http.Handler // instead of the recording one
	address  string       // of the upstream, instead of one of the harness's own
	shared   *harness     // another replica on this one's store and upstream
	level    slog.Level
	tb       testing.TB
}

// hook is a webhook of provider hmac, as cmd would make it.
func hook(t testing.TB, name, path string, change ...func(*proxy.Webhook)) *proxy.Webhook {
	t.Helper()
	w := provided(t, name, path, "hmac", secret)
	for _, c := range change {
		c(w)
	}
	return w
}

// provided is a webhook of any provider.
func provided(t testing.TB, name, path, provider, secret string) *proxy.Webhook {
	t.Helper()
	p, ok := webhook.Lookup(provider)
	if !ok {
		t.Fatal("no provider", provider)
	}
	w := &proxy.Webhook{
		Name: name, Path: path, Provider: p,
		MissingID:       proxy.MissingSHA256,
		ReleaseOn:       func(status int) bool { return status < 200 || status >= 300 },
		DuplicateStatus: http.StatusOK,
		InvalidStatus:   http.StatusUnauthorized,
		Verifier:        func() *webhook.Verifier { return nil },
	}
	rule := p.EventID
	if rule == "" {
		rule = "sha256"
	}
	w.Key = keyRule(t, rule)
	if secret != "" || !p.NeedsSecret {
		var secrets []string
		if secret != "" {
			secrets = []string{secret}
		}
		v, err := p.NewVerifier(secrets, webhook.Options{Tolerance: p.Tolerance})
		if err != nil {
			t.Fatal(err)
		}
		w.Verifier = func() *webhook.Verifier { return v }
	}
	return w
}

func keyRule(t testing.TB, text string) webhook.KeyRule {
	t.Helper()
	rule, err := webhook.ParseKeyRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return rule
}

// start starts everything and stops it when the test ends.
func start(t testing.TB, changes ...func(*setup)) *harness {
	t.Helper()
	h := &harness{t: t, logs: newLogs(), registry: prometheus.NewRegistry()}
	s := &setup{
		Config: proxy.Config{
			Webhooks: []*proxy.Webhook{hook(t, "default", path)},
			Now:      time.Now, Lease: time.Minute, InFlightWait: patience, UpstreamTimeout: patience, ReadTimeout: patience,
			MaxBody: 1 << 20, MaxBuffered: 64 << 20, Forwarded: "preserve",
		},
		options: store.Options{Table: "processed_events", Lease: time.Minute, Timeout: patience},
		level:   slog.LevelDebug,
		tb:      t,
	}
	for _, change := range changes {
		change(s)
	}

	if s.shared != nil {
		h.file, h.upstream = s.shared.file, s.shared.upstream
	} else {
		h.file = filepath.Join(t.TempDir(), "hookonce.db")
		h.upstream = newUpstream(t, s.upstream)
	}
	real, err := sqlite.Open("sqlite:"+h.file, s.options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(real.Close)
	if err := real.Migrate(context.Background(), false); err != nil {
		t.Fatal(err)
	}
	h.store = newInjector(real)

	var names []string
	for _, w := range s.Webhooks {
		names = append(names, w.Name)
	}
	if s.Upstream == nil {
		address := s.address
		if address == "" {
			address = h.upstream.Listener.Addr().String()
		}
		s.Upstream = &url.URL{Scheme: "http", Host: address}
	}
	transport := proxy.NewTransport()
	s.Config.Store, s.Transport = h.store, transport
	s.Log = slog.New(slog.NewJSONHandler(h.logs, &slog.HandlerOptions{Level: s.level}))
	s.Metrics = metrics.New(h.registry, "test", names, proxy.Outcomes())
	h.handler = proxy.New(s.Config)

	running, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() { defer close(stopped); h.handler.Run(running) }()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h.handler, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug)}
	served := make(chan struct{})
	go func() { defer close(served); server.Serve(listener) }()
	h.address = listener.Addr().String()
	clientTransport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100}
	h.client = &http.Client{Transport: clientTransport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(func() {
		clientTransport.CloseIdleConnections()
		server.Close()
		limit, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		h.drained(limit)
		stop()
		<-served
		<-stopped
		transport.CloseIdleConnections()
	})
	return h
}

// drained waits for the deliveries alone: what a test leaves unsettled is its
// own affair.
func (h *harness) drained(limit context.Context) {
	h.store.setAll(nil)
	h.handler.Drain(limit)
}

// settled waits until all deliveries have ended and are settled.
func (h *harness) settled() {
	h.t.Helper()
	limit, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if d, s := h.handler.Drain(limit); d+s > 0 {
		h.t.Fatalf("%d deliveries and %d settlements are still open", d, s)
	}
}

// gate is closed when the test ends, if not before.
type gate struct {
	once sync.Once
	c    chan struct{}
}

func newGate(t testing.TB) *gate {
	g := &gate{c: make(chan struct{})}
	t.Cleanup(g.open)
	return g
}

func (g *gate) open() { g.once.Do(func() { close(g.c) }) }

func await[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: did not come", what)
		panic("unreachable")
	}
}

// seen is a request as the upstream got it.
type seen struct {
	*http.Request
	body []byte
	err  error // of reading the body
}

// upstream records what it gets, and answers as the test says.
type upstream struct {
	*httptest.Server
	arrived chan seen
	mu      sync.Mutex
	all     []seen
	answer  func(http.ResponseWriter, *seen)
}

func newUpstream(t testing.TB, instead http.Handler) *upstream {
	u := &upstream{arrived: make(chan seen, 4096)}
	if instead == nil {
		instead = u
	}
	u.Server = httptest.NewUnstartedServer(instead)
	u.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	u.Start()
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	s := seen{r, body, err}
	u.mu.Lock()
	u.all = append(u.all, s)
	answer := u.answer
	u.mu.Unlock()
	u.arrived <- s
	if answer != nil {
		answer(w, &s)
	}
}

// answers sets how the upstream answers from now on; 200 without a body is
// what it does by itself.
func (u *upstream) answers(f func(http.ResponseWriter, *seen)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answer = f
}

func (u *upstream) status(status int) {
	u.answers(func(w http.ResponseWriter, _ *seen) { w.WriteHeader(status) })
}

// held makes the upstream wait for the gate before it answers.
func (u *upstream) held(g *gate, status int) {
	u.answers(func(w http.ResponseWriter, _ *seen) { <-g.c; w.WriteHeader(status) })
}

func (u *upstream) requests() []seen {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.all)
}

func (h *harness) runs(want int) {
	h.t.Helper()
	if got := len(h.upstream.requests()); got != want {
		h.t.Errorf("the upstream has got %d requests, want %d", got, want)
	}
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of the exchange, or of reading the body
}

func (a answer) outcome() string { return a.header.Get("Hookonce-Outcome") }

// want checks status and outcome at once.
func (a answer) want(t testing.TB, status int, outcome proxy.Outcome) {
	t.Helper()
	if a.err != nil {
		t.Errorf("no answer: %v", a.err)
	}
	if a.status != status || a.outcome() != string(outcome) {
		t.Errorf("answer %d %q, want %d %q (%s)", a.status, a.outcome(), status, outcome, a.body)
	}
}

func event(id string) string { return fmt.Sprintf(`{"id":%q,"amount":4200}`, id) }

func sha(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

func signature(body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

// request is a signed delivery; headers are pairs.
func (h *harness) request(method, target, body string, headers ...string) *http.Request {
	h.t.Helper()
	r, err := http.NewRequest(method, "http://"+h.address+target, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("X-Signature", signature(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func (h *harness) do(r *http.Request) answer {
	response, err := h.client.Do(r)
	if err != nil {
		return answer{err: err, header: http.Header{}}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(body), err}
}

// deliver delivers an event and returns the answer.
func (h *harness) deliver(id string, headers ...string) answer {
	h.t.Helper()
	return h.do(h.request("POST", path, event(id), headers...))
}

// begin delivers an event in the background.
func (h *harness) begin(id string) <-chan answer {
	h.t.Helper()
	r := h.request("POST", path, event(id))
	c := make(chan answer, 1)
	go func() { c <- h.do(r) }()
	return c
}

// raw sends bytes as they are, and returns what comes back until the
// connection ends.
func (h *harness) raw(text string) string {
	h.t.Helper()
	conn := h.dial()
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		h.t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(conn)
	if err != nil && len(got) == 0 {
		h.t.Fatalf("%q: %v", text, err)
	}
	return string(got)
}

func (h *harness) dial() net.Conn {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.address)
	if err != nil {
		h.t.Fatal(err)
	}
	return conn
}

// event is what the store knows of a key; nil if it knows nothing.
func (h *harness) event(key string) *store.Event {
	h.t.Helper()
	e, err := h.store.real.Event(context.Background(), key)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return &e
}

// known checks the store's state of a key; "" is that it knows nothing.
func (h *harness) known(key string, want store.State) {
	h.t.Helper()
	var got store.State
	if e := h.event(key); e != nil {
		got = e.State
	}
	if got != want {
		h.t.Errorf("the store says %q of %s, want %q", got, key, want)
	}
}

// gone waits until the store has no such key.
func (h *harness) gone(key string) {
	h.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for h.event(key) != nil {
		select {
		case <-tick.C:
		case <-limit:
			h.t.Fatalf("%s is still there", key)
		}
	}
}

// expire makes a key's lease run out, as the clock would.
func (h *harness) expire(key string) {
	h.t.Helper()
	db, err := sql.Open("sqlite", "file:"+h.file+"?_busy_timeout=5000")
	if err != nil {
		h.t.Fatal(err)
	}
	defer db.Close()
	result, err := db.Exec(`UPDATE processed_events SET lease_until = lease_until - 3600000 WHERE key = ? AND lease_until IS NOT NULL`, key)
	if err != nil {
		h.t.Fatal(err)
	}
	if n, _ := result.RowsAffected(); n != 1 {
		h.t.Fatalf("no lease of %s", key)
	}
}

// metric is a series' value; a histogram's is its count.
func (h *harness) metric(name string, labels ...string) float64 {
	h.t.Helper()
	return gathered(h.t, h.registry, name, labels...)
}

func gathered(t testing.TB, registry prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum, found := 0.0, false
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(labels); i += 2 {
				if have[labels[i]] != labels[i+1] {
					continue series
				}
			}
			found = true
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	if !found {
		t.Fatalf("no series %s %v", name, labels)
	}
	return sum
}

func (h *harness) outcomes(outcome proxy.Outcome) float64 {
	h.t.Helper()
	return h.metric("hookonce_deliveries_total", "outcome", string(outcome))
}

// logs keeps log lines, and lets tests wait for one.
type logs struct {
	mu      sync.Mutex
	lines   []string
	changed chan struct{}
}

func newLogs() *logs { return &logs{changed: make(chan struct{})} }

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(p))
	close(l.changed)
	l.changed = make(chan struct{})
	return len(p), nil
}

func (l *logs) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "")
}

// await returns the first line with this message and these fields (pairs).
func (l *logs) await(t testing.TB, message string, fields ...string) map[string]any {
	t.Helper()
	timeout := time.After(patience)
	for {
		l.mu.Lock()
		lines, changed := l.lines, l.changed
		l.mu.Unlock()
	line:
		for _, text := range lines {
			var record map[string]any
			if err := json.Unmarshal([]byte(text), &record); err != nil || !strings.Contains(fmt.Sprint(record["msg"]), message) {
				continue
			}
			for i := 0; i < len(fields); i += 2 {
				if fmt.Sprint(record[fields[i]]) != fields[i+1] {
					continue line
				}
			}
			return record
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("no log line %q %v in:\n%s", message, fields, strings.Join(lines, ""))
		}
	}
}

func (h *harness) logged(outcome proxy.Outcome) map[string]any {
	h.t.Helper()
	return h.logs.await(h.t, "delivery", "outcome", string(outcome))
}

// injector is the real store with faults put in front of its operations and
// behind them.
type injector struct {
	real    *sqlite.Store
	mu      sync.Mutex
	before  map[string]func(key string) error
	after   map[string]func(key string) error
	begun   map[string]int
	changed chan struct{}
}

func newInjector(real *sqlite.Store) *injector {
	return &injector{real: real, changed: make(chan struct{}), begun: map[string]int{},
		before: map[string]func(string) error{}, after: map[string]func(string) error{}}
}

var errDown = errors.New("injected: the store is down")

// fails makes operations fail without reaching the store; none named is all.
func (s *injector) fails(operations ...string) {
	down := func(string) error { return errDown }
	if len(operations) == 0 {
		s.setAll(down)
	}
	for _, o := range operations {
		s.set(o, down, nil)
	}
}

// set puts faults in front of and behind one operation; nil: none.
func (s *injector) set(operation string, before, after func(key string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before[operation], s.after[operation] = before, after
}

func (s *injector) setAll(before func(string) error) {
	for _, o := range []string{"claim", "renew", "complete", "release", "end_lease"} {
		s.set(o, before, nil)
	}
}

func (s *injector) count(operation string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun[operation]
}

// await waits until an operation has begun so many times.
func (s *injector) await(t testing.TB, operation string, times int) {
	t.Helper()
	timeout := time.After(patience)
	for {
		s.mu.Lock()
		n, changed := s.begun[operation], s.changed
		s.mu.Unlock()
		if n >= times {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("the store has been asked to %s %d times, want %d", operation, n, times)
		}
	}
}

func (s *injector) do(operation, key string, call func() error) error {
	s.mu.Lock()
	s.begun[operation]++
	close(s.changed)
	s.changed = make(chan struct{})
	before, after := s.before[operation], s.after[operation]
	s.mu.Unlock()
	if before != nil {
		if err := before(key); err != nil {
			return err
		}
	}
	err := call()
	if err == nil && after != nil {
		err = after(key)
	}
	return err
}

func (s *injector) Claim(ctx context.Context, key string, t store.Token) (c store.Claim, err error) {
	err = s.do("claim", key, func() (err error) { c, err = s.real.Claim(ctx, key, t); return err })
	if err != nil {
		c = store.Claim{}
	}
	return c, err
}

func (s *injector) Renew(ctx context.Context, key string, t store.Token) error {
	return s.do("renew", key, func() error { return s.real.Renew(ctx, key, t) })
}

func (s *injector) Complete(ctx context.Context, key string, t store.Token, status int) error {
	return s.do("complete", key, func() error { return s.real.Complete(ctx, key, t, status) })
}

func (s *injector) Release(ctx context.Context, key string, t store.Token) error {
	return s.do("release", key, func() error { return s.real.Release(ctx, key, t) })
}

func (s *injector) EndLease(ctx context.Context, key string, t store.Token) error {
	return s.do("end_lease", key, func() error { return s.real.EndLease(ctx, key, t) })
}

func (s *injector) KeepAnswer(ctx context.Context, key string, t store.Token, a store.Answer) error {
	return s.do("keep_answer", key, func() error { return s.real.KeepAnswer(ctx, key, t, a) })
}

func (s *injector) Answer(ctx context.Context, key string) (a store.Answer, err error) {
	err = s.do("answer", key, func() (err error) {
		a, err = s.real.Answer(ctx, key)
		return err
	})
	return a, err
}

// wire is an upstream that a test plays by hand, byte by byte.
type wire struct {
	t     testing.TB
	l     net.Listener
	conns chan net.Conn
}

func newWire(t testing.TB) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, l: l, conns: make(chan net.Conn, 16)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.conns <- c
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		for {
			select {
			case c := <-w.conns:
				c.Close()
			default:
				return
			}
		}
	})
	return w
}

func (w *wire) address() string { return w.l.Addr().String() }

// accept takes the next connection and reads one request from it: the head as
// bytes, the body as announced.
func (w *wire) accept() (*bufio.Reader, net.Conn) {
	w.t.Helper()
	c := await(w.t, w.conns, "a connection to the upstream")
	w.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return bufio.NewReader(c), c
}

// head reads a request's head as it came.
func head(t testing.TB, r *bufio.Reader) string {
	t.Helper()
	var b bytes.Buffer
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("the request broke off after %q: %v", b.String(), err)
		}
		b.WriteString(line)
		if line == "\r\n" {
			return b.String()
		}
	}
}

// plainAsTLS is a server without TLS where TLS is expected.
func plainAsTLS(t testing.TB) *url.URL {
	t.Helper()
	plain := httptest.NewUnstartedServer(http.NotFoundHandler())
	plain.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	plain.Start()
	t.Cleanup(plain.Close)
	return &url.URL{Scheme: "https", Host: plain.Listener.Addr().String()}
}

// readAll reads a request's body without using it up.
func readAll(t testing.TB, r *http.Request) string {
	t.Helper()
	body, err := r.GetBody()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// cancelled is a context that is over.
func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
