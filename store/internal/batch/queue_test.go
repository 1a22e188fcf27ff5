package batch_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/hookonce/hookonce/store/internal/batch"
)

// gated is a queue whose batches wait for the test: each flight takes its batch
// when told to, shows it, and lands when told to.
type gated struct {
	*batch.Queue[int]
	take chan struct{}
	took chan []*batch.Item[int]
	land chan func(q *batch.Queue[int], items []*batch.Item[int])
}

func newGated(size, flights int) *gated {
	g := &gated{take: make(chan struct{}), took: make(chan []*batch.Item[int]), land: make(chan func(*batch.Queue[int], []*batch.Item[int]))}
	g.Queue = batch.New(size, flights, func(q *batch.Queue[int], take func() []*batch.Item[int]) {
		<-g.take
		items := take()
		g.took <- items
		(<-g.land)(q, items)
	})
	return g
}

// fly lets the next flight take its batch.
func (g *gated) fly() []*batch.Item[int] {
	g.take <- struct{}{}
	return <-g.took
}

func finish(err error) func(*batch.Queue[int], []*batch.Item[int]) {
	return func(_ *batch.Queue[int], items []*batch.Item[int]) {
		for _, it := range items {
			it.Finish(err)
		}
	}
}

func again(err error, alone bool) func(*batch.Queue[int], []*batch.Item[int]) {
	return func(q *batch.Queue[int], items []*batch.Item[int]) { q.Again(items, err, alone) }
}

func ops(items []*batch.Item[int]) (ops []int) {
	for _, it := range items {
		ops = append(ops, it.Op)
	}
	return ops
}

// do asks in the background, and waits until the operation is in the queue.
func (g *gated) do(ctx context.Context, op int) chan error {
	answer := make(chan error, 1)
	go func() { answer <- g.Do(ctx, op) }()
	synctest.Wait()
	return answer
}

// pilot flies, so that those who come after it need not.
func (g *gated) pilot(t *testing.T) {
	t.Helper()
	g.do(t.Context(), 0)
	expect(t, g.fly(), 0)
}

func expect(t *testing.T, got []*batch.Item[int], want ...int) {
	t.Helper()
	if diff := cmp.Diff(want, ops(got)); diff != "" {
		t.Fatalf("batch (-want +got):\n%s", diff)
	}
}

var errBroken = errors.New("broken")

func TestWhatQueuesMeanwhileIsTheNextBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(3, 1)
		g.do(t.Context(), 1)
		expect(t, g.fly(), 1) // a lone one goes at once
		for op := 2; op <= 6; op++ {
			g.do(t.Context(), op)
		}
		g.land <- finish(nil)
		expect(t, g.fly(), 2, 3, 4) // bounded, in the order of arrival
		g.land <- finish(nil)
		expect(t, g.fly(), 5, 6)
		g.land <- finish(nil)
		g.Close()
		if err := g.Do(t.Context(), 7); !errors.Is(err, batch.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestSoManyFlightsAtOnceAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(10, 2)
		g.do(t.Context(), 1)
		expect(t, g.fly(), 1)
		g.do(t.Context(), 2)
		expect(t, g.fly(), 2)
		g.do(t.Context(), 3)
		select {
		case g.take <- struct{}{}:
			t.Fatal("a third flight")
		default:
		}
		g.land <- finish(nil)
		expect(t, g.fly(), 3)
		g.land <- finish(nil)
		g.land <- finish(nil)
		g.Close()
	})
}

func TestManyOperationsGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(10, 2)
		none := func(when string) {
			t.Helper()
			synctest.Wait()
			select {
			case g.take <- struct{}{}:
				t.Fatal("a second flight ", when)
			default:
			}
		}
		g.do(t.Context(), 1)
		expect(t, g.fly(), 1)
		for op := 2; op <= 5; op++ {
			g.do(t.Context(), op)
		}
		expect(t, g.fly(), 2, 3, 4, 5) // they came one by one before
		g.land <- finish(nil)          // one of the two, no matter which
		g.do(t.Context(), 6)
		g.do(t.Context(), 7)
		none("beside the other")
		g.land <- finish(nil)
		expect(t, g.fly(), 6, 7)
		g.land <- finish(nil)
		g.Close()
	})
}

func TestWhoLeavesBeforeSendingIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(10, 1)
		g.pilot(t)
		ctx, leave := context.WithCancel(t.Context())
		one, two := g.do(ctx, 1), g.do(t.Context(), 2)
		leave()
		if err := <-one; !errors.Is(err, context.Canceled) || errors.Is(err, batch.ErrDoubtful) {
			t.Errorf("got %v", err)
		}
		g.land <- finish(nil)
		expect(t, g.fly(), 2)
		g.land <- finish(nil)
		if err := <-two; err != nil {
			t.Error(err)
		}
		g.Close()
	})
}

func TestWhoLeavesAfterSendingIsInDoubtAndNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(10, 1)
		g.pilot(t)
		ctx, leave := context.WithCancel(t.Context())
		one, two := g.do(ctx, 1), g.do(t.Context(), 2)
		g.land <- finish(nil)
		expect(t, g.fly(), 1, 2)
		leave()
		if err := <-one; !errors.Is(err, context.Canceled) || !errors.Is(err, batch.ErrDoubtful) {
			t.Errorf("got %v", err)
		}
		g.land <- again(errBroken, false)
		expect(t, g.fly(), 2)
		g.land <- finish(nil)
		if err := <-two; err != nil {
			t.Error(err)
		}
		g.Close()
	})
}

func TestFailedBatchGoesFirstThenGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(10, 1)
		one := g.do(t.Context(), 1)
		expect(t, g.fly(), 1)
		two := g.do(t.Context(), 2)
		g.land <- again(errBroken, false)
		expect(t, g.fly(), 1, 2)
		g.land <- again(errBroken, false)
		expect(t, g.fly(), 1, 2)
		g.land <- again(errBroken, false)
		if err := <-one; !errors.Is(err, errBroken) {
			t.Errorf("got %v", err)
		}
		expect(t, g.fly(), 2)
		g.land <- finish(nil)
		if err := <-two; err != nil {
			t.Error(err)
		}
		g.Close()
	})
}

func TestDoubtOutlivesTheNextTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(10, 1)
		one := g.do(t.Context(), 1)
		g.fly()[0].Doubtful = true
		g.land <- again(errBroken, false)
		g.fly()
		g.land <- finish(errors.New("no right"))
		if err := <-one; !errors.Is(err, batch.ErrDoubtful) {
			t.Errorf("got %v", err)
		}
		g.Close()
	})
}

func TestAfterAPoisonedBatchEachTravelsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(10, 1)
		one, two := g.do(t.Context(), 1), g.do(t.Context(), 2)
		expect(t, g.fly(), 1, 2)
		three := g.do(t.Context(), 3)
		g.land <- again(errBroken, true)
		expect(t, g.fly(), 1)
		g.land <- again(errBroken, true) // it is the poisoned one
		expect(t, g.fly(), 2)
		g.land <- finish(nil)
		expect(t, g.fly(), 3)
		g.land <- finish(nil)
		if err := <-one; !errors.Is(err, errBroken) {
			t.Errorf("the poisoned one: %v", err)
		}
		if err := errors.Join(<-two, <-three); err != nil {
			t.Error(err)
		}
		g.Close()
	})
}

func TestFlightThatPanicsKeepsNobodyFromFlying(t *testing.T) {
	panics := true
	q := batch.New(10, 1, func(_ *batch.Queue[int], take func() []*batch.Item[int]) {
		items := take()
		if panics {
			panic("a fault")
		}
		for _, it := range items {
			it.Finish(nil)
		}
	})
	func() {
		defer func() { _ = recover() }()
		_ = q.Do(t.Context(), 1)
	}()
	panics = false
	if err := q.Do(t.Context(), 2); err != nil {
		t.Error(err)
	}
	q.Close()
}

func TestFullQueueMakesCallersWaitUnderTheirOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(1, 1)
		var inside sync.WaitGroup
		ctx, leave := context.WithCancel(t.Context())
		g.pilot(t)
		for op := range 8*128 - 1 {
			inside.Go(func() { _ = g.Do(ctx, op) })
		}
		synctest.Wait()
		late, giveUp := context.WithCancel(t.Context())
		answer := g.do(late, -1)
		giveUp()
		if err := <-answer; !errors.Is(err, batch.ErrFull) || errors.Is(err, batch.ErrDoubtful) {
			t.Errorf("got %v", err)
		}
		leave()
		inside.Wait()
		g.land <- finish(nil)
		synctest.Wait()
		select {
		case g.take <- struct{}{}:
			t.Errorf("%v were sent although all had left", ops(<-g.took))
		default:
		}
		g.Close()
	})
}
