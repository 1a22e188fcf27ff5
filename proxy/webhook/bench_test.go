package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// stripeBody looks like an event of Stripe's: pretty-printed, deeply indented, of about n bytes.
func stripeBody(n int) []byte {
	var b strings.Builder
	b.WriteString("{\n  \"id\": \"evt_1NqA2bLkdIwHu7ixTg0y2Yqp\",\n  \"object\": \"event\",\n  \"api_version\": \"2025-03-31.basil\",\n  \"created\": 1767225600,\n  \"data\": {\n    \"object\": {\n      \"id\": \"in_1NqA2bLkdIwHu7ix\",\n      \"lines\": {\n        \"data\": [\n")
	for i := 0; b.Len() < n-300; i++ {
		if i > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, `          {
            "id": "il_1NqA2bLkdIwHu7ix%06d",
            "object": "line_item",
            "amount": %d,
            "currency": "eur",
            "description": "%d × Größe \"L\" (at €19.99 / month)",
            "discountable": true,
            "discounts": [],
            "livemode": false,
            "metadata": {
              "order_id": "6735",
              "cart": "c0ffee-%d"
            },
            "period": {
              "end": 1769904000,
              "start": 1767225600
            },
            "proration": false,
            "quantity": 1,
            "taxes": null
          }`, i, 1999+i*7, i+1, i*i)
	}
	b.WriteString("\n        ]\n      }\n    }\n  },\n  \"livemode\": false,\n  \"pending_webhooks\": 1,\n  \"request\": {\n    \"id\": null,\n    \"idempotency_key\": null\n  },\n  \"type\": \"invoice.paid\"\n}")
	return []byte(b.String())
}

// BenchmarkStripe10KB compares what hookonce does for a delivery with the bare HMAC, which nobody can do without.
func BenchmarkStripe10KB(b *testing.B) {
	body, now := stripeBody(10<<10), time.Unix(1767225600, 0)
	const secret = "whsec_benchmark"
	r := &Request{Method: "POST", Header: http.Header{}, Body: body}
	p, _ := Lookup("stripe")
	v, err := p.NewVerifier([]string{secret}, Options{Tolerance: p.Tolerance})
	if err != nil {
		b.Fatal(err)
	}
	if err := v.Sign(r, "", now); err != nil {
		b.Fatal(err)
	}
	rule, err := ParseKeyRule(p.EventID)
	if err != nil {
		b.Fatal(err)
	}
	bare := func() {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write(body)
		mac.Sum(nil)
	}
	verify := func() {
		if f := v.Verify(r, now); f != nil {
			b.Fatal(f)
		}
	}
	both := func() {
		verify()
		if id, ok := rule.EventID(r); !ok || EventKey(id) == "" {
			b.Fatal("no id")
		}
	}
	for _, bench := range []struct {
		name string
		run  func()
	}{{"hmac", bare}, {"verify", verify}, {"verify+key", both}} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				bench.run()
			}
		})
	}
	// both in turn, and their medians: what else the machine does falls out
	b.Run("times_the_hmac", func(b *testing.B) {
		var took [2][]time.Duration
		for b.Loop() {
			for i, run := range []func(){bare, both} {
				start := time.Now()
				run()
				took[i] = append(took[i], time.Since(start))
			}
		}
		for i := range took {
			slices.Sort(took[i])
		}
		b.ReportMetric(float64(took[1][len(took[1])/2])/float64(took[0][len(took[0])/2]), "ratio")
	})
}

func BenchmarkEventID5MB(b *testing.B) {
	r := &Request{Body: stripeBody(5 << 20)}
	rule, err := ParseKeyRule("json:id")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(r.Body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := rule.EventID(r); !ok {
			b.Fatal("no id")
		}
	}
}
