// Package batch gathers operations that have to wait anyway into one statement
// and one commit (group commit).
//
// Nothing waits for a timer: whatever has queued while the batches before it
// were on their way is the next batch, and operations that come one by one go at
// once.
package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
)

var (
	// ErrDoubtful means that the operation was sent, and nobody knows whether
	// it was carried out, or still will be.
	ErrDoubtful = errors.New("it is not known whether it was carried out")

	// ErrFull means that the queue had no room until the caller's time was up.
	ErrFull = errors.New("too many operations are waiting for the store")

	// ErrClosed means that the queue takes no more operations.
	ErrClosed = errors.New("the store is closed")
)

// maxTries is how often an operation is sent before its error is the caller's:
// a stale connection, the one after it, and one that a failover had to make.
const maxTries = 3

// Item is one operation in the queue.
type Item[O any] struct {
	Op O

	// Doubtful means that it was sent before and nobody knows what came of it.
	Doubtful bool

	done  chan error
	tries int
	alone bool  // has to travel by itself: a batch with it has failed
	taken bool  // is under way
	left  bool  // its caller left while it was: not to be sent again
	last  error // why it came back
}

// Finish gives the operation's caller its answer, once. The error of a doubtful
// operation wraps ErrDoubtful.
func (it *Item[O]) Finish(err error) {
	if err != nil && it.Doubtful {
		err = fmt.Errorf("%w: %w", ErrDoubtful, err)
	}
	it.done <- err
}

// Queue takes operations one by one and hands them out in batches.
type Queue[O any] struct {
	size, flights int
	slots         chan struct{} // back-pressure: one for each operation inside
	fly           func(take func() []*Item[O])

	mu      sync.Mutex
	waiting []*Item[O]
	flying  int // flights under way
	usual   int // size of a batch, of late
	closed  bool
	landed  sync.WaitGroup
}

// New returns a queue of batches of at most size operations, of which at most
// so many flights are under way at once. fly runs one batch: it calls take when
// it is ready to send (until then more may queue, or leave), and gives every
// item that it was handed either to Finish or back with Again.
func New[O any](size, flights int, fly func(q *Queue[O], take func() []*Item[O])) *Queue[O] {
	q := &Queue[O]{size: size, flights: flights, slots: make(chan struct{}, 8*max(size, 128))}
	q.fly = func(take func() []*Item[O]) { fly(q, take) }
	return q
}

// Do queues the operation and returns its answer. A caller whose context ends
// leaves and harms nobody: at once, or when the batch has landed that it runs
// itself. The error wraps ErrDoubtful if the operation may have been carried
// out, or may still be.
func (q *Queue[O]) Do(ctx context.Context, op O) error {
	select {
	case q.slots <- struct{}{}:
		defer func() { <-q.slots }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrFull, context.Cause(ctx))
	}
	it := &Item[O]{Op: op, done: make(chan error, 1)}
	switch flies, err := q.add(it); {
	case err != nil:
		return err
	case flies: // a goroutine of its own would only cost time
		if q.flyOnce() {
			go q.run()
		}
	}
	select {
	case err := <-it.done:
		return err
	case <-ctx.Done():
		return q.leave(it, context.Cause(ctx))
	}
}

// add queues the operation; flies says that the caller has to fly.
func (q *Queue[O]) add(it *Item[O]) (flies bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false, ErrClosed
	}
	q.waiting = append(q.waiting, it)
	if q.mayFly(q.flying) {
		q.flying++
		q.landed.Add(1)
		return true, nil
	}
	return false, nil
}

// mayFly says whether a flight may go beside so many others. Where operations
// come one by one they need not wait for each other. Where they come in crowds
// a crowd goes together: its commit costs the database about the same as that
// of one.
func (q *Queue[O]) mayFly(others int) bool {
	return others == 0 || others < q.flights && q.usual <= 1
}

// grown says whether more is waiting than was.
func (q *Queue[O]) grown(queued *int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := *queued
	*queued = len(q.waiting)
	return *queued > before
}

func (q *Queue[O]) run() {
	for q.flyOnce() {
	}
}

// flyOnce runs one batch, and says whether to fly again.
func (q *Queue[O]) flyOnce() (again bool) {
	for queued := 0; q.grown(&queued); { // whoever is just about to ask goes along
		runtime.Gosched()
	}
	landed := false
	defer func() { // also of a flight that panics: who flies in a handler does not end the process
		q.mu.Lock()
		defer q.mu.Unlock()
		if again = landed && len(q.waiting) > 0 && q.mayFly(q.flying-1); !again {
			q.flying--
			q.landed.Done()
		}
	}()
	q.fly(q.take)
	landed = true
	return
}

// take hands out the next batch, in the order of arrival; nil if all have left.
func (q *Queue[O]) take() []*Item[O] {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < len(q.waiting) && n < q.size && (n == 0 || !q.waiting[n].alone) {
		q.waiting[n].taken = true
		n++
		if q.waiting[n-1].alone {
			break
		}
	}
	q.usual = (q.usual + n) / 2
	items := make([]*Item[O], n)
	copy(items, q.waiting)
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:])
	q.waiting = q.waiting[:rest]
	return items
}

// Again queues what a failed batch held once more, in front of the others;
// what has failed too often gets the error instead. Items that travelled with
// one that the store cannot take travel alone from here on. A queue that is
// being closed asks nothing again.
func (q *Queue[O]) Again(items []*Item[O], err error, alone bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	again := make([]*Item[O], 0, len(items)+len(q.waiting))
	for _, it := range items {
		it.tries++
		if it.tries >= maxTries || q.closed || it.left || it.alone && alone {
			it.Finish(err)
			continue
		}
		it.taken, it.alone, it.last = false, alone, err
		again = append(again, it)
	}
	q.waiting = append(again, q.waiting...)
}

func (q *Queue[O]) leave(it *Item[O], cause error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case err := <-it.done: // answered in the same moment
		return err
	default:
	}
	if it.last != nil {
		cause = fmt.Errorf("%w; before that: %w", cause, it.last)
	}
	if it.taken {
		it.left = true
		return fmt.Errorf("%w: %w", ErrDoubtful, cause)
	}
	for i, other := range q.waiting {
		if other == it {
			q.waiting = append(q.waiting[:i:i], q.waiting[i+1:]...)
			break
		}
	}
	if it.Doubtful {
		return fmt.Errorf("%w: %w", ErrDoubtful, cause)
	}
	return cause
}

// Close refuses new operations and waits until those inside are answered.
func (q *Queue[O]) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.landed.Wait()
}
