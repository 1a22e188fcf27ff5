package proxy

import (
	"fmt"
	"net/http"
	"testing"
)

// BenchmarkMatch is what finding a request's webhook takes among ten.
func BenchmarkMatch(b *testing.B) {
	h := &Handler{}
	for i := range 10 {
		w := &Webhook{Path: fmt.Sprintf("/webhook/provider-%d", i)}
		w.folded = fold(w.Path)
		h.Webhooks = append(h.Webhooks, w)
	}
	tree := &Webhook{Path: "/hooks/", folded: fold("/hooks/")}
	h.Webhooks = append(h.Webhooks, tree)
	for _, request := range []struct {
		name, target string
		hook         *Webhook
	}{
		{"exact", "/webhook/provider-7", h.Webhooks[7]},
		{"subtree", "/hooks/4f2a/billing", tree},
		{"none", "/rest/workflows?filter=active&limit=20", nil},
	} {
		b.Run(request.name, func(b *testing.B) {
			r := &http.Request{RequestURI: request.target}
			b.ReportAllocs()
			for b.Loop() {
				if hook, _, _ := h.match(r); hook != request.hook {
					b.Fatal(hook)
				}
			}
		})
	}
}
