package admin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hookonce/hookonce/proxy/admin"
)

func ask(t *testing.T, method, path string, ready bool) *httptest.ResponseRecorder {
	t.Helper()
	registry := prometheus.NewRegistry()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "a_gauge", Help: "A gauge."})
	registry.MustRegister(gauge)
	h := admin.Handler(registry, func() (bool, string) { return ready, "the store is down" }, func() string { return "hookonce 1.2.3\n" })
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func TestEveryPageIsThere(t *testing.T) {
	for path, want := range map[string]string{
		"/livez":   "ok\n",
		"/readyz":  "the store is down\n",
		"/":        "hookonce 1.2.3\n",
		"/metrics": "a_gauge 0\n",
	} {
		w := ask(t, "GET", path, true)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %q, want %q", path, w.Code, w.Body, want)
		}
		if path != "/metrics" && (w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Content-Type") != "text/plain; charset=utf-8") {
			t.Errorf("%s: %v", path, w.Header())
		}
	}
}

func TestReadinessIsWhatTheProcessSays(t *testing.T) {
	if w := ask(t, "GET", "/readyz", false); w.Code != http.StatusServiceUnavailable || w.Body.String() != "the store is down\n" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

func TestLivenessAsksNobody(t *testing.T) {
	if w := ask(t, "GET", "/livez", false); w.Code != http.StatusOK {
		t.Errorf("%d", w.Code)
	}
}

func TestNothingOnThisPortChangesAnything(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
		for _, path := range []string{"/", "/livez", "/readyz", "/metrics"} {
			if w := ask(t, method, path, true); w.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
		}
	}
	for _, path := range []string{"/debug/pprof/", "/events", "/x"} {
		if w := ask(t, "GET", path, true); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}
