package proxy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hookonce/hookonce/proxy"
)

func replaying(s *setup) {
	for _, w := range s.Webhooks {
		w.Replay = true
	}
}

func answersXML(body string) func(http.ResponseWriter, *seen) {
	return func(w http.ResponseWriter, _ *seen) {
		w.Header().Set("Content-Type", "text/xml")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, body)
	}
}

func TestReplayGivesTheFirstAnswerAgain(t *testing.T) {
	h := start(t, replaying)
	h.upstream.answers(answersXML("<Response>1</Response>"))
	first := h.deliver("evt_1")
	first.want(t, http.StatusCreated, proxy.Forwarded)
	h.upstream.answers(answersXML("<Response>2</Response>"))
	again := h.deliver("evt_1")
	again.want(t, http.StatusCreated, proxy.Duplicate)
	for _, a := range []answer{first, again} {
		if a.body != "<Response>1</Response>" || a.header.Get("Content-Type") != "text/xml" {
			t.Errorf("%q %v", a.body, a.header)
		}
	}
	h.runs(1)
}

func TestAnswerIsNotKeptWithoutReplay(t *testing.T) {
	h := start(t)
	h.upstream.answers(answersXML("<Response/>"))
	h.deliver("evt_1").want(t, http.StatusCreated, proxy.Forwarded)
	again := h.deliver("evt_1")
	again.want(t, http.StatusOK, proxy.Duplicate)
	if again.body != "" {
		t.Errorf("%q", again.body)
	}
	if n := h.store.count("keep_answer"); n != 0 {
		t.Errorf("the store was asked to keep %d answers", n)
	}
}

func TestAnswerTooLargeToKeepIsRelayedWhole(t *testing.T) {
	h := start(t, replaying)
	large := strings.Repeat("x", 64<<10+1)
	h.upstream.answers(answersXML(large))
	first := h.deliver("evt_1")
	first.want(t, http.StatusCreated, proxy.Forwarded)
	if first.body != large {
		t.Errorf("%d bytes, want %d", len(first.body), len(large))
	}
	again := h.deliver("evt_1")
	again.want(t, http.StatusOK, proxy.Duplicate)
	if again.body != "" {
		t.Errorf("%q", again.body)
	}
}

func TestFailureIsNotReplayed(t *testing.T) {
	h := start(t, replaying)
	h.upstream.status(http.StatusInternalServerError)
	h.deliver("evt_1").want(t, http.StatusInternalServerError, proxy.Released)
	h.upstream.answers(answersXML("<Response>2</Response>"))
	h.deliver("evt_1").want(t, http.StatusCreated, proxy.Forwarded)
	h.runs(2)
}

func TestStoreThatCannotKeepTheAnswerDoesNotStopTheCompletion(t *testing.T) {
	h := start(t, replaying)
	h.store.fails("keep_answer")
	h.upstream.answers(answersXML("<Response/>"))
	h.deliver("evt_1").want(t, http.StatusCreated, proxy.Forwarded)
	h.deliver("evt_1").want(t, http.StatusOK, proxy.Duplicate)
	h.runs(1)
}
