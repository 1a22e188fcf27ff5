package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hookonce/hookonce/proxy/webhook"
	"github.com/hookonce/hookonce/store/pgtest"
)

// patience is how long a test waits for what has to come.
const patience = 15 * time.Second

// eventually waits until ok says true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	limit := time.After(patience)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// transcript is what a program has written so far.
type transcript struct {
	mu    sync.Mutex
	text  bytes.Buffer
	limit int // keep no more bytes than about this; 0: keep all
}

func (w *transcript) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.limit > 0 && w.text.Len() > w.limit {
		return len(p), nil
	}
	return w.text.Write(p)
}

func (w *transcript) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// lines are the log's lines that have this message.
func (w *transcript) lines(message string) (found []map[string]any) {
	for line := range strings.Lines(w.String()) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) == nil && fields["msg"] == message {
			found = append(found, fields)
		}
	}
	return found
}

// address is where the server listens that LISTEN_ADDR or ADMIN_ADDR name; ""
// while it does not.
func (w *transcript) address(variable string) string {
	for _, line := range w.lines("listening") {
		if line["for"] == variable {
			return "http://" + line["address"].(string)
		}
	}
	return ""
}

// command runs the program to its end, which is near: if it serves all the
// same, it is stopped.
func command(t testing.TB, environ []string, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	code = run(ctx, args, environ, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

const testSecret = "S3CR3T-of-the-tests"

// serveEnv is an environment to serve with: a webhook of Stripe's at /hook. What
// is in more ("NAME=value") comes on top; "NAME=" takes a variable away.
func serveEnv(upstream, databaseURL string, more ...string) []string {
	return append([]string{
		"LISTEN_ADDR=127.0.0.1:0", "ADMIN_ADDR=127.0.0.1:0", "UPSTREAM_URL=" + upstream, "DATABASE_URL=" + databaseURL,
		"WEBHOOK_PATH=/hook", "WEBHOOK_PROVIDER=stripe", "WEBHOOK_SECRET=" + testSecret,
	}, more...)
}

// serving is a server of the test's own process.
type serving struct {
	url, admin string
	log        *transcript
	ended      chan int // gets the exit code
	cancel     context.CancelFunc
}

// start begins to serve, and leaves it to the caller whether that goes well.
func start(t testing.TB, environ []string) *serving {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &serving{log: &transcript{}, ended: make(chan int, 1), cancel: cancel}
	go func() { s.ended <- run(ctx, nil, environ, strings.NewReader(""), io.Discard, s.log) }()
	t.Cleanup(func() { s.stop(t) })
	return s
}

// serve serves until the test ends.
func serve(t testing.TB, environ []string) *serving {
	t.Helper()
	s := start(t, environ)
	eventually(t, "hookonce listens", func() bool {
		select {
		case code := <-s.ended:
			s.ended <- code
			t.Fatalf("ended with %d:\n%s", code, s.log)
		default:
		}
		s.url, s.admin = s.log.address("LISTEN_ADDR"), s.log.address("ADMIN_ADDR")
		return s.url != "" && s.admin != ""
	})
	return s
}

// serveReady serves, and waits until the store is there.
func serveReady(t testing.TB, environ []string) *serving {
	t.Helper()
	s := serve(t, environ)
	s.waitReady(t)
	return s
}

func (s *serving) waitReady(t testing.TB) {
	t.Helper()
	eventually(t, "the store is up", func() bool { return s.readyz(t) == "ok\n" })
}

func (s *serving) readyz(t testing.TB) string { return get(t, s.admin+"/readyz").body }

// stop ends the server as SIGTERM does, and returns its exit code.
func (s *serving) stop(t testing.TB) int {
	t.Helper()
	s.cancel()
	return s.wait(t)
}

// wait returns the exit code, once the server has ended.
func (s *serving) wait(t testing.TB) int {
	t.Helper()
	select {
	case code := <-s.ended:
		s.ended <- code
		return code
	case <-time.After(patience + 25*time.Second):
		t.Fatalf("does not end:\n%s", s.log)
		return -1
	}
}

// received is one request that reached the application.
type received struct {
	method, target, body string
	header               http.Header
}

// application is an application that writes down what reaches it.
type application struct {
	*httptest.Server
	mu   sync.Mutex
	runs []received
}

// newApplication answers as the handler does; nil: 200.
func newApplication(t testing.TB, handler http.HandlerFunc) *application {
	t.Helper()
	a := &application{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a.mu.Lock()
		a.runs = append(a.runs, received{r.Method, r.RequestURI, string(body), r.Header})
		a.mu.Unlock()
		if handler != nil {
			handler(w, r)
		}
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *application) seen() []received {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]received(nil), a.runs...)
}

// answer is what a sender got back.
type answer struct {
	status  int
	outcome string
	header  http.Header
	body    string
}

// signed is a delivery of Stripe's, signed at that time.
func signed(t testing.TB, url, body string, at time.Time) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Stripe-Signature", stripeSignature(body, at))
	return r
}

// stripeSignature is Stripe's (docs.stripe.com, "Verify webhook signatures
// manually"), made without the product's code.
func stripeSignature(body string, at time.Time) string {
	mac := hmac.New(sha256.New, []byte(testSecret))
	fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
	return fmt.Sprintf("t=%d,v1=%x", at.Unix(), mac.Sum(nil))
}

func sign(t testing.TB, header http.Header, provider, secret, body string, at time.Time) {
	t.Helper()
	preset, ok := webhook.Lookup(provider)
	if !ok {
		t.Fatalf("no provider %s", provider)
	}
	verifier, err := preset.NewVerifier([]string{secret}, webhook.Options{})
	if err != nil {
		t.Fatal(err)
	}
	request := &webhook.Request{Method: http.MethodPost, Target: "/", Header: header, Body: []byte(body)}
	if err := verifier.Sign(request, "", at); err != nil {
		t.Fatal(err)
	}
}

// deliver posts a body to the webhook, as Stripe does.
func (s *serving) deliver(t testing.TB, body string) answer {
	t.Helper()
	return do(t, signed(t, s.url+"/hook", body, time.Now()))
}

func do(t testing.TB, r *http.Request) answer {
	t.Helper()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header.Get("Hookonce-Outcome"), response.Header, string(body)}
}

func get(t testing.TB, url string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, r)
}

// wantAnswer fails unless the answer is that.
func wantAnswer(t testing.TB, got answer, status int, outcome string) {
	t.Helper()
	if got.status != status || got.outcome != outcome {
		t.Errorf("answered %d %q (%s), want %d %q", got.status, got.outcome, got.body, status, outcome)
	}
}

// eachStore runs a test on both stores; url names an empty database.
func eachStore(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("postgres", func(t *testing.T) { test(t, pgtest.Start(t).Database(t)) })
	t.Run("sqlite", func(t *testing.T) { test(t, "sqlite:"+filepath.Join(t.TempDir(), "hookonce.db")) })
}

// buildDir is where binary builds; it goes when the tests have ended.
var buildDir string

// binary builds the program once, as it is released.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(buildDir, "hookonce")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// process is a server that is a process of its own.
type process struct {
	serving
	cmd *exec.Cmd
}

// launch starts the program and waits until it listens. The process ends with
// the test at the latest.
func launch(t testing.TB, environ []string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return launchFrom(t, path, environ, 0)
}

func launchFrom(t testing.TB, path string, environ []string, logLimit int) *process {
	t.Helper()
	p := &process{serving: serving{log: &transcript{limit: logLimit}, ended: make(chan int, 1), cancel: func() {}}, cmd: exec.Command(path)}
	p.cmd.Env, p.cmd.Stderr, p.cmd.Dir = environ, p.log, t.TempDir()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		p.ended <- p.cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		p.wait(t)
	})
	eventually(t, "the process listens", func() bool {
		select {
		case code := <-p.ended:
			p.ended <- code
			t.Fatalf("ended with %d:\n%s", code, p.log)
		default:
		}
		p.url, p.admin = p.log.address("LISTEN_ADDR"), p.log.address("ADMIN_ADDR")
		return p.url != "" && p.admin != ""
	})
	return p
}

func (p *process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func TestMain(m *testing.M) {
	if name := os.Getenv(roleVariable); name != "" {
		if err := play(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var err error
	if buildDir, err = os.MkdirTemp("", "hookonce-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(buildDir)
	os.Exit(code)
}
