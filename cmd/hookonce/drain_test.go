package main

import (
	"bufio"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// blocking is an application that says when a request has arrived and answers
// when finish is closed; /stream sends one line and then nothing more.
func blocking(t *testing.T) (app *application, arrived chan string, finish chan struct{}) {
	arrived, finish = make(chan string, 16), make(chan struct{})
	app = newApplication(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			_, _ = w.Write([]byte("begun\n"))
			_ = http.NewResponseController(w).Flush()
		}
		arrived <- r.URL.Path
		select {
		case <-finish:
		case <-r.Context().Done():
		}
	})
	return app, arrived, finish
}

// deliverAside delivers in the background.
func (p *process) deliverAside(t *testing.T, body string) chan answer {
	answers := make(chan answer, 1)
	r := signed(t, p.url+"/hook", body, time.Now())
	go func() {
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			answers <- answer{body: err.Error()}
			return
		}
		response.Body.Close()
		answers <- answer{status: response.StatusCode, outcome: response.Header.Get("Hookonce-Outcome")}
	}()
	return answers
}

func TestSIGTERMFinishesWhatIsUnderWay(t *testing.T) {
	database := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	app, arrived, finish := blocking(t)
	environ := serveEnv(app.URL, database, "SHUTDOWN_DELAY=1500ms")
	p := launch(t, environ)
	p.waitReady(t)
	first := p.deliverAside(t, `{"id":"evt_A"}`)
	<-arrived
	p.signal(t, syscall.SIGTERM)

	// During the delay: not ready, and still accepting on new connections.
	eventually(t, "not ready", func() bool { return get(t, p.admin+"/readyz").status == http.StatusServiceUnavailable })
	if live := get(t, p.admin+"/livez"); live.status != http.StatusOK {
		t.Errorf("livez: %d", live.status)
	}
	http.DefaultClient.CloseIdleConnections()
	second := p.deliverAside(t, `{"id":"evt_B"}`)
	<-arrived

	// After it: no new connection, and the two go on.
	eventually(t, "no new connection is accepted", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	close(finish)
	for _, answers := range []chan answer{first, second} {
		wantAnswer(t, <-answers, http.StatusOK, "forwarded")
	}
	if code := p.wait(t); code != exitOK {
		t.Errorf("exit code %d: %s", code, p.log)
	}
	if code, out, stderr := command(t, environ, "", "events", "list", "--state", "done"); code != exitOK || strings.Count(out, "evt:evt_") != 2 {
		t.Errorf("not settled: %s%s", out, stderr)
	}
}

func TestDeliveryThatIsCutOffIsToldAndTakenOverLater(t *testing.T) {
	database := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	app, arrived, _ := blocking(t)
	environ := serveEnv(app.URL, database, "SHUTDOWN_TIMEOUT=100ms", "LEASE=1s")
	p := launch(t, environ)
	p.waitReady(t)
	p.deliverAside(t, `{"id":"evt_A"}`)
	<-arrived
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t); code != exitFailed || !strings.Contains(p.log.String(), "SHUTDOWN_TIMEOUT") {
		t.Errorf("exit code %d: %s", code, p.log)
	}
	well := newApplication(t, nil)
	s := serveReady(t, append(environ, "UPSTREAM_URL="+well.URL))
	eventually(t, "taken over", func() bool { return s.deliver(t, `{"id":"evt_A"}`).outcome == "forwarded" })
	if told := well.seen()[0].header.Get("Hookonce-Prior-Outcome"); told != "unknown" {
		t.Errorf("told %q", told)
	}
}

func TestStreamThatPassesThroughDoesNotCount(t *testing.T) {
	app, arrived, _ := blocking(t)
	p := launch(t, serveEnv(app.URL, "sqlite:"+filepath.Join(t.TempDir(), "x.db"), "SHUTDOWN_TIMEOUT=100ms"))
	response, err := http.Get(p.url + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); line != "begun\n" {
		t.Fatalf("%q, %v", line, err)
	}
	<-arrived
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t); code != exitOK {
		t.Errorf("exit code %d: %s", code, p.log)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	for _, delay := range []string{"0s", "1h"} {
		app, arrived, _ := blocking(t)
		p := launch(t, serveEnv(app.URL, "sqlite:"+filepath.Join(t.TempDir(), "x.db"), "SHUTDOWN_TIMEOUT=1h", "SHUTDOWN_DELAY="+delay))
		p.waitReady(t)
		p.deliverAside(t, `{"id":"evt_A"}`)
		<-arrived
		p.signal(t, syscall.SIGTERM)
		eventually(t, "it stops", func() bool { return len(p.log.lines("stopping")) > 0 })
		p.signal(t, syscall.SIGTERM)
		if code := p.wait(t); code == exitOK {
			t.Errorf("delay %s: exit code %d", delay, code)
		}
	}
}
