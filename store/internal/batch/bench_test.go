package batch_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/hookonce/hookonce/store/internal/batch"
)

// BenchmarkQueue is what an operation costs beside the statement that it
// travels in: here that does nothing. A channel's round trip is what nobody can
// do without.
func BenchmarkQueue(b *testing.B) {
	ways := []struct {
		name string
		way  func(b *testing.B) func()
	}{
		{"channel", func(b *testing.B) func() {
			asked := make(chan chan error)
			b.Cleanup(func() { close(asked) })
			go func() {
				for answer := range asked {
					answer <- nil
				}
			}()
			return func() {
				answer := make(chan error, 1)
				asked <- answer
				<-answer
			}
		}},
		{"queue", func(b *testing.B) func() {
			q := batch.New(256, 2, func(_ *batch.Queue[int], take func() []*batch.Item[int]) {
				for _, it := range take() {
					it.Finish(nil)
				}
			})
			b.Cleanup(q.Close)
			return func() {
				if err := q.Do(b.Context(), 1); err != nil {
					b.Error(err)
				}
			}
		}},
	}
	for _, callers := range []int{1, 32, 128} {
		for _, w := range ways {
			b.Run(fmt.Sprintf("%s/%d", w.name, callers), func(b *testing.B) {
				b.ReportAllocs()
				do := w.way(b)
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						for range (b.N + i) / callers {
							do()
						}
					})
				}
				all.Wait()
			})
		}
	}
}
