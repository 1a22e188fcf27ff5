package proxy

import (
	"context"
	"sync"
)

// flights are the keys that this process has in hand. One delivery leads for
// each key, the others wait for it, and nobody else asks the store meanwhile.
type flights struct {
	mu      sync.Mutex
	running map[string]*flight
}

// flight is one key in hand. completed may be read once ended is closed.
type flight struct {
	ended     chan struct{}
	completed bool // the event is done; else: whoever waits may try
}

// join returns the key's flight; leads says that the caller has opened it and
// has to land it.
func (fs *flights) join(key string) (f *flight, leads bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f, ok := fs.running[key]; ok {
		return f, false
	}
	f = &flight{ended: make(chan struct{})}
	fs.running[key] = f
	return f, true
}

// land ends a flight and forgets it: from here on the store knows best.
func (fs *flights) land(key string, f *flight, completed bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.end(completed)
	if fs.running[key] == f {
		delete(fs.running, key)
	}
}

// complete ends a flight whose completion the store does not know yet: until
// it lands, this process answers for the key.
func (fs *flights) complete(f *flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f.end(true)
}

func (f *flight) end(completed bool) {
	if !f.landed() {
		f.completed = completed
		close(f.ended)
	}
}

func (f *flight) landed() bool {
	select {
	case <-f.ended:
		return true
	default:
		return false
	}
}

// tally counts what is under way, for those who want to wait for the end.
type tally struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // closed when n falls to 0; nil while nobody waits
}

func (t *tally) begin() {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
}

func (t *tally) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.zero != nil {
		close(t.zero)
		t.zero = nil
	}
}

// wait waits until nothing is under way, or says how much still is.
func (t *tally) wait(ctx context.Context) (left int) {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return 0
	}
	if t.zero == nil {
		t.zero = make(chan struct{})
	}
	zero := t.zero
	t.mu.Unlock()
	select {
	case <-zero:
		return 0
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.n
	}
}
