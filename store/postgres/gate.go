package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// gatePause is how long after an attempt to connect the next one may follow
// while none succeeds: a database that has no connection left, or has just
// come back, must not be stormed by all replicas.
const gatePause = 500 * time.Millisecond

// gate lets attempts to connect pass one at a time: the next one as soon as
// one has succeeded, or gatePause after one that has not.
type gate struct {
	turn chan struct{}
	wait time.Duration

	mu   sync.Mutex
	open *time.Timer
}

func (g *gate) enter(ctx context.Context, _ *pgx.ConnConfig) error {
	timeout := time.NewTimer(g.wait)
	defer timeout.Stop()
	select {
	case g.turn <- struct{}{}:
	case <-timeout.C:
		return errors.New("waited in vain for another attempt to connect")
	case <-ctx.Done():
		return ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = time.AfterFunc(gatePause, func() { <-g.turn })
	return nil
}

func (g *gate) leave(context.Context, *pgx.Conn) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open.Stop() {
		<-g.turn
	}
	return nil
}
