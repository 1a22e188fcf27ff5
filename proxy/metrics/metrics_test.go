package metrics_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/hookonce/hookonce/proxy"
	"github.com/hookonce/hookonce/proxy/metrics"
)

// TestNamesAndLabelsAreTheContracts pins the public surface: type, name and
// labels of every metric, all there before anything has happened.
func TestNamesAndLabelsAreTheContracts(t *testing.T) {
	want := []string{
		"COUNTER hookonce_cleanup_deleted_total",
		"COUNTER hookonce_cleanup_unsettled_deleted_total",
		"COUNTER hookonce_deliveries_total outcome webhook",
		"COUNTER hookonce_leases_expired_total webhook",
		"COUNTER hookonce_leases_lost_total webhook",
		"COUNTER hookonce_observed_total outcome webhook",
		"COUNTER hookonce_passthrough_requests_total code",
		"COUNTER hookonce_signature_failures_total reason webhook",
		"COUNTER hookonce_store_errors_total operation",
		"GAUGE hookonce_build_info goversion version",
		"GAUGE hookonce_deliveries_in_flight webhook",
		"GAUGE hookonce_held_events",
		"GAUGE hookonce_last_cleanup_timestamp_seconds",
		"GAUGE hookonce_ready",
		"GAUGE hookonce_store_connections state",
		"HISTOGRAM hookonce_claim_batch_size",
		"HISTOGRAM hookonce_delivery_body_bytes webhook",
		"HISTOGRAM hookonce_delivery_duration_seconds outcome webhook",
		"HISTOGRAM hookonce_store_operation_duration_seconds operation",
		"HISTOGRAM hookonce_upstream_request_duration_seconds code webhook",
	}
	registry := prometheus.NewRegistry()
	metrics.New(registry, "1.2.3", []string{"stripe", "github"}, proxy.Outcomes())
	var got []string
	collectors := map[string]bool{}
	for _, f := range gather(t, registry) {
		prefix, _, _ := strings.Cut(f.GetName(), "_")
		if prefix != "hookonce" {
			collectors[prefix] = true
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, " "+l.GetName())
		}
		got = append(got, f.GetType().String()+" "+f.GetName()+strings.Join(labels, ""))
		if f.GetHelp() == "" {
			t.Errorf("%s has no help", f.GetName())
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if !collectors["go"] || !collectors["process"] {
		t.Errorf("collectors: %v", collectors)
	}
}

// TestAllSeriesAreThereFromTheStart counts them: an alert on a series that
// appears with the first fault misses the first fault.
func TestAllSeriesAreThereFromTheStart(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := metrics.New(registry, "1.2.3", []string{"stripe", "github"}, proxy.Outcomes())
	outcomes := len(proxy.Outcomes())
	before := map[string]int{}
	for _, f := range gather(t, registry) {
		before[f.GetName()] = len(f.GetMetric())
	}
	for name, want := range map[string]int{
		"hookonce_deliveries_total":                  2 * outcomes,
		"hookonce_delivery_duration_seconds":         2 * outcomes,
		"hookonce_observed_total":                    2 * outcomes,
		"hookonce_deliveries_in_flight":              2,
		"hookonce_delivery_body_bytes":               2,
		"hookonce_leases_expired_total":              2,
		"hookonce_leases_lost_total":                 2,
		"hookonce_signature_failures_total":          2 * 5,
		"hookonce_upstream_request_duration_seconds": 2 * 6,
		"hookonce_passthrough_requests_total":        6,
		"hookonce_store_connections":                 3,
		"hookonce_store_operation_duration_seconds":  8,
		"hookonce_store_errors_total":                8,
	} {
		if before[name] != want {
			t.Errorf("%s has %d series, want %d", name, before[name], want)
		}
	}
	for _, outcome := range proxy.Outcomes() {
		m.Begin("stripe")
		m.End("stripe", outcome, time.Second)
		m.BodyRead("stripe", 1)
		m.WouldHave("stripe", outcome)
	}
	for status := -1; status < 1000; status++ {
		m.PassedThrough(status)
		m.UpstreamAnswered("stripe", &http.Response{StatusCode: status}, time.Second)
	}
	m.UpstreamAnswered("stripe", nil, time.Second)
	for _, reason := range []string{"missing", "malformed", "mismatch", "too_old", "too_new"} {
		m.SignatureFailed("stripe", reason)
	}
	for _, operation := range []string{"claim", "renew", "complete", "release", "end_lease", "keep_answer", "answer", "cleanup"} {
		m.StoreAnswered(operation, time.Second, errors.New("x"))
	}
	m.LeaseExpired("stripe")
	m.LeaseLost("stripe")
	m.Connections(1, 2, 3)
	for _, f := range gather(t, registry) {
		if strings.HasPrefix(f.GetName(), "hookonce_") && len(f.GetMetric()) != before[f.GetName()] {
			t.Errorf("%s has grown from %d to %d series", f.GetName(), before[f.GetName()], len(f.GetMetric()))
		}
	}
}

func TestGaugesSayWhatTheyWereTold(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := metrics.New(registry, "1.2.3", []string{"stripe"}, proxy.Outcomes())
	m.Connections(1, 2, 3)
	m.StoreState(4, true)
	m.Cleaned(5, 2, time.Unix(1000, 0))
	m.Batched(7)
	values := func() string {
		var all []string
		for _, f := range gather(t, registry) {
			for _, m := range f.GetMetric() {
				switch name := strings.TrimPrefix(f.GetName(), "hookonce_"); name {
				case "ready", "held_events", "cleanup_deleted_total", "cleanup_unsettled_deleted_total", "last_cleanup_timestamp_seconds", "store_connections":
					all = append(all, fmt.Sprintf("%s=%v", name, m.GetGauge().GetValue()+m.GetCounter().GetValue()))
				}
			}
		}
		return strings.Join(all, " ")
	}
	if got, want := values(), "cleanup_deleted_total=5 cleanup_unsettled_deleted_total=2 held_events=4 last_cleanup_timestamp_seconds=1000 ready=1 store_connections=2 store_connections=1 store_connections=3"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	m.StoreState(0, false) // what is held is not known now: the last word stands
	if got := values(); !strings.Contains(got, "held_events=4") || !strings.Contains(got, "ready=0") {
		t.Error(got)
	}
}

// gather gathers, and fails the test if anything is inconsistent.
func gather(t *testing.T, registry *prometheus.Registry) []*dto.MetricFamily {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}
