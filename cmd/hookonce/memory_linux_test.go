package main

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// memory is a figure of the process in /proc, in kB (proc_pid_status(5)).
func (p *process) memory(t *testing.T, figure string) (kB int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, figure+":"); ok {
			_, _ = fmt.Sscan(value, &kB)
			return kB
		}
	}
	t.Fatalf("no %s", figure)
	return 0
}

// post sends a body of zeros, a mebibyte at a time with a rest after each, and
// reads the answer meanwhile, as a sender does that an early answer reaches.
func post(address, id, signature string, mebibytes int, rest time.Duration) (answer, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return answer{}, err
	}
	defer conn.Close()
	answered := make(chan struct{})
	go func() {
		fmt.Fprintf(conn, "POST /hook HTTP/1.1\r\nHost: app\r\nX-Hub-Signature-256: %s\r\nX-GitHub-Delivery: %s\r\nContent-Length: %d\r\n\r\n",
			signature, id, mebibytes<<20)
		piece := make([]byte, 1<<20)
		for range mebibytes {
			select {
			case <-answered:
				return
			case <-time.After(rest):
			}
			if _, err := conn.Write(piece); err != nil {
				return
			}
		}
	}()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	close(answered)
	if err != nil {
		return answer{}, err
	}
	return answer{status: response.StatusCode, outcome: response.Header.Get("Hookonce-Outcome"), header: response.Header}, nil
}

func TestMemoryIsBounded(t *testing.T) {
	const mebibytes, deliveries = 25, 200 // MAX_BODY's default
	mac := hmac.New(sha256.New, []byte(testSecret))
	for range mebibytes {
		mac.Write(make([]byte, 1<<20))
	}
	signature := fmt.Sprintf("sha256=%x", mac.Sum(nil))

	var whole, slow atomic.Int32
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		buffer := make([]byte, 64<<10)
		unhurried := slow.Add(1)%2 == 0
		var got int64
		for {
			n, err := r.Body.Read(buffer)
			if got += int64(n); err != nil {
				break
			}
			if unhurried && got%(1<<20) < int64(n) {
				wait(10 * time.Millisecond)
			}
		}
		if got == mebibytes<<20 {
			whole.Add(1)
		}
	}))
	defer app.Close()
	p := launch(t, serveEnv(app.URL, "sqlite:"+filepath.Join(t.TempDir(), "x.db"), "WEBHOOK_PROVIDER=github", "READ_TIMEOUT=5m"))
	p.waitReady(t)
	idle := p.memory(t, "VmRSS")
	if idle >= 30_000 {
		t.Errorf("idle: %d kB resident", idle)
	}

	address := strings.TrimPrefix(p.url, "http://")
	var mu sync.Mutex
	ended := map[string]int{}
	var all sync.WaitGroup
	for i := range deliveries {
		rest := time.Duration(i%2) * 40 * time.Millisecond // every other one is slow
		all.Go(func() {
			got, err := post(address, fmt.Sprint(i), signature, mebibytes, rest)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("delivery %d: %v", i, err)
			}
			ended[fmt.Sprintf("%d %s", got.status, got.outcome)]++
			if got.outcome == "overloaded" && (got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "") {
				t.Errorf("overloaded: %d, %v", got.status, got.header)
			}
		})
	}
	all.Wait()
	peak := p.memory(t, "VmHWM")
	t.Logf("idle %d kB, peak %d kB, %v, %d whole at the application", idle, peak, ended, whole.Load())
	if peak >= 400_000 {
		t.Errorf("peak: %d kB resident", peak)
	}
	if forwarded := ended["200 forwarded"]; forwarded == 0 || forwarded != int(whole.Load()) || forwarded+ended["503 overloaded"] != deliveries {
		t.Errorf("%v, %d whole at the application", ended, whole.Load())
	}
	if got, err := post(address, "after the storm", signature, mebibytes, 0); err != nil || got.outcome != "forwarded" {
		t.Errorf("after the storm: %d %s, %v", got.status, got.outcome, err)
	}
}
