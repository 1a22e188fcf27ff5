// Package metrics is hookonce's Prometheus surface. The names and labels are
// public: dashboards and alerts depend on them.
package metrics

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics are all series of one process; all of them are there from the start.
type Metrics struct {
	deliveries  *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	inFlight    *prometheus.GaugeVec
	body        *prometheus.HistogramVec
	signature   *prometheus.CounterVec
	upstream    *prometheus.HistogramVec
	passthrough *prometheus.CounterVec
	operation   *prometheus.HistogramVec
	storeErrors *prometheus.CounterVec
	batch       prometheus.Histogram
	observed    *prometheus.CounterVec
	expired     *prometheus.CounterVec
	lost        *prometheus.CounterVec
	held        prometheus.Gauge
	deleted     prometheus.Counter
	unsettled   prometheus.Counter
	lastCleanup prometheus.Gauge
	connections *prometheus.GaugeVec
	ready       prometheus.Gauge
	codeClasses [6]prometheus.Counter // of passthrough, by status/100
}

// reasons are the values of the reason label of
// hookonce_signature_failures_total.
var reasons = []string{"missing", "malformed", "mismatch", "too_old", "too_new"}

// codes are the values of code labels: the class of the status, or none.
var codes = [6]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

// operations are the values of the operation label.
var operations = []string{"claim", "renew", "complete", "release", "end_lease", "keep_answer", "answer", "cleanup"}

var (
	durationBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	storeBuckets    = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2}
	sizeBuckets     = prometheus.ExponentialBuckets(256, 8, 6) // 256 B to 8 MiB
)

// New registers everything with reg: for these webhooks and outcomes, and for
// this version.
func New(reg prometheus.Registerer, version string, webhooks, outcomes []string) *Metrics {
	f := factory{reg}
	m := &Metrics{
		deliveries:  f.counters("deliveries_total", "Deliveries, by how they ended.", "webhook", "outcome"),
		duration:    f.histograms("delivery_duration_seconds", "From a delivery's headers to the end of its answer.", durationBuckets, "webhook", "outcome"),
		inFlight:    f.gauges("deliveries_in_flight", "Deliveries under way.", "webhook"),
		body:        f.histograms("delivery_body_bytes", "Sizes of the bodies that were read.", sizeBuckets, "webhook"),
		signature:   f.counters("signature_failures_total", "Deliveries refused for their signature, by what was wrong with it.", "webhook", "reason"),
		upstream:    f.histograms("upstream_request_duration_seconds", "From sending a delivery to the upstream's status, by its class; none: no answer.", durationBuckets, "webhook", "code"),
		passthrough: f.counters("passthrough_requests_total", "Requests that are no deliveries, by the class of their status.", "code"),
		operation:   f.histograms("store_operation_duration_seconds", "How long the store took.", storeBuckets, "operation"),
		storeErrors: f.counters("store_errors_total", "Store operations that failed.", "operation"),
		batch:       f.histogram("claim_batch_size", "Claims that shared a commit; on SQLite settlements count, too.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}),
		observed:    f.counters("observed_total", "MODE=observe: how enforcing would have ended deliveries.", "webhook", "outcome"),
		expired:     f.counters("leases_expired_total", "Claims taken over because their lease had run out.", "webhook"),
		lost:        f.counters("leases_lost_total", "Claims settled too late, when another one had them: the event may have run twice.", "webhook"),
		held:        f.gauge("held_events", "Events whose outcome is unknown, waiting for a person."),
		deleted:     f.counter("cleanup_deleted_total", "Keys deleted because their retention was over."),
		unsettled:   f.counter("cleanup_unsettled_deleted_total", "Of the deleted keys, those that never completed: nobody sent the event again."),
		lastCleanup: f.gauge("last_cleanup_timestamp_seconds", "When cleanup last went through, Unix time; 0: not yet."),
		connections: f.gauges("store_connections", "Connections to the store.", "state"),
		ready:       f.gauge("ready", "1 if deliveries can be claimed."),
	}
	info := f.gauges("build_info", "Always 1.", "version", "goversion")
	info.WithLabelValues(version, runtime.Version()).Set(1)
	for _, hook := range webhooks {
		m.inFlight.WithLabelValues(hook)
		m.body.WithLabelValues(hook)
		m.expired.WithLabelValues(hook)
		m.lost.WithLabelValues(hook)
		for _, outcome := range outcomes {
			m.deliveries.WithLabelValues(hook, outcome)
			m.duration.WithLabelValues(hook, outcome)
			m.observed.WithLabelValues(hook, outcome)
		}
		for _, reason := range reasons {
			m.signature.WithLabelValues(hook, reason)
		}
		for _, code := range codes {
			m.upstream.WithLabelValues(hook, code)
		}
	}
	for i, code := range codes {
		m.codeClasses[i] = m.passthrough.WithLabelValues(code)
	}
	for _, operation := range operations {
		m.operation.WithLabelValues(operation)
		m.storeErrors.WithLabelValues(operation)
	}
	for _, state := range []string{"in_use", "idle", "max"} {
		m.connections.WithLabelValues(state)
	}
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Begin counts a delivery in.
func (m *Metrics) Begin(webhook string) { m.inFlight.WithLabelValues(webhook).Inc() }

// End counts a delivery out: its outcome, and how long it took.
func (m *Metrics) End(webhook, outcome string, took time.Duration) {
	m.inFlight.WithLabelValues(webhook).Dec()
	m.deliveries.WithLabelValues(webhook, outcome).Inc()
	m.duration.WithLabelValues(webhook, outcome).Observe(took.Seconds())
}

// BodyRead counts a body that was read whole, of so many bytes.
func (m *Metrics) BodyRead(webhook string, size int) {
	m.body.WithLabelValues(webhook).Observe(float64(size))
}

// SignatureFailed counts a refused delivery by what was wrong.
func (m *Metrics) SignatureFailed(webhook, reason string) {
	m.signature.WithLabelValues(webhook, reason).Inc()
}

// WouldHave counts how enforcing would have ended an observed delivery.
func (m *Metrics) WouldHave(webhook, outcome string) {
	m.observed.WithLabelValues(webhook, outcome).Inc()
}

// LeaseExpired counts a takeover of a lease that ran out.
func (m *Metrics) LeaseExpired(webhook string) { m.expired.WithLabelValues(webhook).Inc() }

// LeaseLost counts a claim that was settled too late.
func (m *Metrics) LeaseLost(webhook string) { m.lost.WithLabelValues(webhook).Inc() }

// UpstreamAnswered counts an upstream call; a nil response is none.
func (m *Metrics) UpstreamAnswered(webhook string, response *http.Response, took time.Duration) {
	status := 0
	if response != nil {
		status = response.StatusCode
	}
	m.upstream.WithLabelValues(webhook, codes[class(status)]).Observe(took.Seconds())
}

// PassedThrough counts a request that is no delivery, by its status.
func (m *Metrics) PassedThrough(status int) { m.codeClasses[class(status)].Inc() }

// StoreAnswered counts a store operation.
func (m *Metrics) StoreAnswered(operation string, took time.Duration, err error) {
	m.operation.WithLabelValues(operation).Observe(took.Seconds())
	if err != nil {
		m.storeErrors.WithLabelValues(operation).Inc()
	}
}

// Batched counts operations that went to the store together.
func (m *Metrics) Batched(size int) { m.batch.Observe(float64(size)) }

// Cleaned counts one finished cleanup.
func (m *Metrics) Cleaned(deleted, unsettled int, at time.Time) {
	m.deleted.Add(float64(deleted))
	m.unsettled.Add(float64(unsettled))
	m.lastCleanup.Set(float64(at.Unix()))
}

// StoreState says how many events are held and whether claims can be had.
func (m *Metrics) StoreState(held int, ready bool) {
	if ready {
		m.held.Set(float64(held))
		m.ready.Set(1)
		return
	}
	m.ready.Set(0)
}

// Connections says how many connections to the store there are.
func (m *Metrics) Connections(inUse, idle, max int) {
	m.connections.WithLabelValues("in_use").Set(float64(inUse))
	m.connections.WithLabelValues("idle").Set(float64(idle))
	m.connections.WithLabelValues("max").Set(float64(max))
}

func class(status int) int {
	if status < 100 || status > 599 {
		return 0
	}
	return status / 100
}

// factory makes and registers; a name that is taken is a fault of ours.
type factory struct{ reg prometheus.Registerer }

func register[C prometheus.Collector](f factory, c C) C {
	f.reg.MustRegister(c)
	return c
}

func (f factory) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return register(f, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "hookonce", Name: name, Help: help}, labels))
}

func (f factory) counter(name, help string) prometheus.Counter {
	return register(f, prometheus.NewCounter(prometheus.CounterOpts{Namespace: "hookonce", Name: name, Help: help}))
}

func (f factory) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(f, prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "hookonce", Name: name, Help: help}, labels))
}

func (f factory) gauge(name, help string) prometheus.Gauge {
	return register(f, prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "hookonce", Name: name, Help: help}))
}

func (f factory) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return register(f, prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "hookonce", Name: name, Help: help, Buckets: buckets}, labels))
}

func (f factory) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return register(f, prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "hookonce", Name: name, Help: help, Buckets: buckets}))
}
