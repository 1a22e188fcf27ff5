package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hookonce/hookonce/store"
)

// Benchmark measures what an event costs the store, a claim and a completion,
// and what a duplicate costs, for more and more callers at once.
func Benchmark(b *testing.B, open func(b *testing.B, o store.Options) Store) {
	for _, batches := range []struct {
		name string
		size int
	}{{"batched", 0}, {"single", 1}} {
		o := Options()
		o.BatchSize = batches.size
		s := open(b, o)
		for _, callers := range []int{1, 32, 128} {
			b.Run(fmt.Sprintf("new/%s/%d", batches.name, callers), func(b *testing.B) {
				spread(b, callers, func() {
					token := store.NewToken()
					key := "evt:" + token.String()
					if c, err := s.Claim(b.Context(), key, token); err != nil || !c.Won {
						b.Error(c, err)
					}
					if err := s.Complete(b.Context(), key, token, 200); err != nil {
						b.Error(err)
					}
				})
			})
			b.Run(fmt.Sprintf("duplicate/%s/%d", batches.name, callers), func(b *testing.B) {
				if err := s.Complete(b.Context(), "evt:done", store.NewToken(), 200); err == nil {
					b.Error("the token was never given")
				}
				spread(b, callers, func() {
					if c, err := s.Claim(b.Context(), "evt:done", store.NewToken()); err != nil || c.State != store.Done {
						b.Error(c, err)
					}
				})
			})
		}
	}
}

func spread(b *testing.B, callers int, f func()) {
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				f()
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
