package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"
)

// Token is the fencing token: a claim's own random name, never used again.
// Whoever renews or releases a claim must name it.
type Token [16]byte

// NewToken returns a token nobody had before.
func NewToken() Token {
	var t Token
	rand.Read(t[:]) // never fails, since Go 1.24: crypto/rand documentation
	return t
}

// String is the token as 32 hexadecimal digits, which Postgres reads as a uuid.
func (t Token) String() string { return hex.EncodeToString(t[:]) }

// State is what the store knows of an event.
type State string

// The states of an event.
const (
	InFlight State = "in_flight" // claimed, the lease holds
	Done     State = "done"      // completed: never run again
	Held     State = "held"      // the lease ended without an outcome; a person decides
	Unknown  State = "unknown"   // the lease has ended and it may have run; the next delivery runs
)

// Prior is what is known of the attempts before this one.
type Prior string

// What may be known of earlier attempts.
const (
	PriorNone    Prior = "none"    // nothing of it has run
	PriorUnknown Prior = "unknown" // an earlier attempt may have run
	PriorDone    Prior = "done"    // it has run, and a person let it through once more
)

// Claim is the store's answer to whoever asks for a key.
type Claim struct {
	Won       bool          // the key is the asker's, under the token it named
	Attempt   int           // when won: 1, and one more each time the key was taken over
	Prior     Prior         // when won
	TakenOver bool          // when won: from a lease that ran out before anyone settled it
	State     State         // when not won: Done, InFlight or Held
	LeaseLeft time.Duration // when in flight: how long the lease still holds, on the store's clock
}

// Event is one row, as people see it.
type Event struct {
	Key         string     `json:"key"`
	State       State      `json:"state"`
	FirstSeen   time.Time  `json:"first_seen"`
	Attempts    int        `json:"attempts"`
	Prior       Prior      `json:"prior_outcome"`
	LeaseUntil  *time.Time `json:"lease_until"`
	CompletedAt *time.Time `json:"completed_at"`
	Status      *int       `json:"status"` // of the upstream's answer; nil where none is known
}

// Answer is the upstream's answer to an event, kept for those providers whose
// repeats need it again.
type Answer struct {
	Status      int
	ContentType string // "": none
	Body        []byte // at most 64 KiB
}

// Cleaned is what one cleanup deleted.
type Cleaned struct {
	Deleted   int // rows, in all
	Unsettled int // of them: the lease ran out, and nobody ever retried
}

// Options are what every store is opened with.
type Options struct {
	Table   string        // the events table, may be schema-qualified
	Lease   time.Duration // how long a claim holds without being renewed
	Hold    bool          // a claim whose outcome is unknown is held for a person (ON_UNKNOWN=hold)
	Timeout time.Duration // for one operation, asking again included

	// BatchSize is the most operations of a kind that share one statement and
	// one commit; 0 is the store's own choice, 1 gives each its own (what
	// benchmarks compare with).
	BatchSize int

	// ObserveBatch, where not nil, is told how many claims (in SQLite also settlements)
	// shared a commit.
	ObserveBatch func(size int)
}

// Stats says what the store's connections do, for a gauge by state.
type Stats struct {
	InUse int // at work
	Idle  int // open and waiting
	Max   int // that may be open at once
}

// AdoptAdvice says of a table (%s) that hookonce did not make why it is left
// alone, and what to do.
const AdoptAdvice = `the table %s belongs to a workflow that claims for itself. Behind hookonce ` +
	`it would find hookonce's own claim, take its duplicate branch and lose every event. ` +
	`Remove the claim step from the workflow first, then run: hookonce migrate --adopt ` +
	`(or set ADOPT_TABLE=true); or set another EVENTS_TABLE`

var (
	// ErrLost means that the claim is no longer under the token named: it was
	// taken over, released, completed or deleted by somebody else.
	ErrLost = errors.New("the claim is no longer held under this token")

	// ErrUncertain wraps the error of a claim of which nobody can say whether
	// it was committed: it has to be released, should it be there.
	ErrUncertain = errors.New("the claim may have been committed")

	// ErrNotFound means that the store has no such key.
	ErrNotFound = errors.New("no such key")

	// ErrConflict means that the event's state forbids what a person asked for.
	ErrConflict = errors.New("the event's state forbids it")

	// ErrForeignTable means that the events table belongs to a workflow that
	// claims for itself; see Migrate.
	ErrForeignTable = errors.New("the table was not made by hookonce")

	// ErrSchemaOld means that the schema has to be migrated first.
	ErrSchemaOld = errors.New("the schema is older than this hookonce")
)
