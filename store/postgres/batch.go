package postgres

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hookonce/hookonce/store"
	"github.com/hookonce/hookonce/store/internal/batch"
)

// op is one claim, renewal or settlement.
type op struct {
	key    string
	token  store.Token
	status int
	claim  store.Claim // the answer to a claim
}

type (
	item = batch.Item[*op]

	// lane is where the operations of one kind share statements and commits.
	lane = batch.Queue[*op]
)

const (
	defaultBatchSize = 256

	// Where operations come one by one: so many need not wait for each other.
	flightsPerLane = 2
)

// newLane returns a lane whose batches are run by run, which returns the items
// that it could not finish, and why.
func (s *Store) newLane(run func(context.Context, *pgxpool.Conn, []*item) ([]*item, error)) *lane {
	size, flights := s.o.BatchSize, flightsPerLane
	switch size {
	case 0:
		size = defaultBatchSize
	case 1: // one statement for each: then as many at once as there are connections
		flights = int(s.pool.Config().MaxConns)
	}
	return batch.New(size, flights, func(q *lane, take func() []*item) {
		// Not a caller's context: one who leaves must not end the others' statement.
		ctx, cancel := context.WithTimeout(context.Background(), s.o.Timeout)
		defer cancel()
		conn, err := s.pool.Acquire(ctx)
		items := take()
		if err != nil {
			q.Again(items, translate(&connectError{err}), false)
			return
		}
		defer conn.Release()
		if len(items) == 0 {
			return
		}
		// Not by the context: pgx would start a goroutine to watch it.
		deadline, _ := ctx.Deadline()
		wire := conn.Conn().PgConn().Conn()
		_ = wire.SetDeadline(deadline)
		defer func() {
			if !conn.Conn().IsClosed() { // pgx has a deadline of its own for closing
				_ = wire.SetDeadline(time.Time{})
			}
		}()
		// All replicas insert, and lock what they lock in advance, in the order
		// of the keys, so that none waits for another that waits for it.
		slices.SortFunc(items, func(a, b *item) int { return strings.Compare(a.Op.key, b.Op.key) })
		rest, err := run(context.Background(), conn, items)
		if err != nil {
			sortOut(q, rest, s.inspect(conn, err))
		}
	})
}

// sortOut decides what becomes of the items of a batch that failed.
func sortOut(q *lane, items []*item, err error) {
	for _, it := range items {
		it.Doubtful = it.Doubtful || doubtful(err)
	}
	switch told := translate(err); {
	case worthAnother(err):
		q.Again(items, told, false)
	case poisoned(err) && len(items) > 1:
		q.Again(items, told, true)
	default:
		for _, it := range items {
			it.Finish(told)
		}
	}
}

// ask puts an operation into a lane and waits for its answer.
func (s *Store) ask(ctx context.Context, l *lane, o *op) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.o.Timeout, s.errTimeout)
	defer cancel()
	return l.Do(ctx, o)
}

// columns are the batch as the arrays that unnest takes.
func columns(items []*item) (keys, tokens []string) {
	keys, tokens = make([]string, len(items)), make([]string, len(items))
	for i, it := range items {
		keys[i], tokens[i] = it.Op.key, it.Op.token.String()
	}
	return keys, tokens
}

// name tells apart the claims of one key.
type name struct {
	key   string
	token store.Token
}

func (o *op) name() name { return name{o.key, o.token} }

// names collects the (key, token) pairs that a statement returns.
func names(rows pgx.Rows, err error) (map[name]bool, error) {
	if err != nil {
		return nil, err
	}
	found := map[name]bool{}
	var n name
	_, err = pgx.ForEachRow(rows, []any{&n.key, (*[16]byte)(&n.token)}, func() error {
		found[n] = true
		return nil
	})
	return found, err
}
