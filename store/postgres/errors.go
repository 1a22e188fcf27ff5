package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/hookonce/hookonce/store"
)

type (
	// connectError: there was no connection, so nothing was sent.
	connectError struct{ error }

	// brokenError: the connection, or the server behind it, is of no more use.
	brokenError struct{ error }
)

func (e *connectError) Unwrap() error { return e.error }
func (e *brokenError) Unwrap() error  { return e.error }

// The codes that matter here: PostgreSQL documentation, appendix A.
const (
	codeReadOnly        = "25006"
	codeNoPrivilege     = "42501"
	codeUndefinedColumn = "42703"
	codeUndefinedTable  = "42P01"
	codeTooMany         = "53300"

	classConnection    = "08"
	classData          = "22" // such as a byte that the encoding does not have
	classConstraint    = "23"
	classRollback      = "40" // deadlock, serialization failure
	classProgramLimits = "54" // such as a key too long for the index
	classIntervention  = "57" // 57P01 to 57P05: the server ends the session; 57014: it ends the statement
	codeCanceled       = "57014"
)

// sqlState is the server's code; empty where the error is not the server's.
func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && len(pg.Code) == 5 {
		return pg.Code
	}
	return ""
}

func inClass(err error, classes ...string) bool {
	code := sqlState(err)
	return code != "" && slices.Contains(classes, code[:2])
}

// serverGone: it ends this session, or was a primary and is none any more.
func serverGone(err error) bool {
	code := sqlState(err)
	return code == codeReadOnly || inClass(err, classConnection, classIntervention) && code != codeCanceled
}

func isBroken(err error) bool {
	_, ok := errors.AsType[*brokenError](err)
	return ok
}

func neverConnected(err error) bool {
	_, ok := errors.AsType[*connectError](err)
	return ok
}

// worthAnother: the same statement may succeed at once on another connection.
func worthAnother(err error) bool {
	return neverConnected(err) || isBroken(err) || inClass(err, classRollback)
}

// poisoned: it lies in the data, so the rest of a batch can do without it.
func poisoned(err error) bool {
	return inClass(err, classData, classConstraint, classProgramLimits) || sqlState(err) == codeLocked
}

// codeLocked: somebody holds a row in a transaction of their own for longer than
// a claim can wait (lock_not_available).
const codeLocked = "55P03"

// doubtful: the statement may have been committed nevertheless.
func doubtful(err error) bool {
	return isBroken(err) && !pgconn.SafeToRetry(err) && sqlState(err) != codeReadOnly
}

func isOwn(err error) bool {
	own := []error{store.ErrLost, store.ErrNotFound, store.ErrConflict, store.ErrForeignTable, store.ErrSchemaOld}
	return slices.ContainsFunc(own, func(o error) bool { return errors.Is(err, o) })
}

// translate says in the store's words what went wrong, and what to do where
// that is known.
func translate(err error) error {
	switch code := sqlState(err); {
	case err == nil || isOwn(err):
		return err
	case code == codeTooMany:
		return fmt.Errorf("the database has no connection left (lower pool_max_conns, or raise max_connections): %w", err)
	case neverConnected(err):
		return fmt.Errorf("no connection to the database: %w", err)
	case code == codeUndefinedTable || code == codeUndefinedColumn:
		return fmt.Errorf("%w (run: hookonce migrate): %w", store.ErrSchemaOld, err)
	case code == codeNoPrivilege:
		return fmt.Errorf("the database role lacks a right (it needs SELECT, INSERT, UPDATE and DELETE on the events table): %w", err)
	case code == codeReadOnly:
		return fmt.Errorf("the database is read-only at present: %w", err)
	case errors.Is(err, context.DeadlineExceeded), pgconn.Timeout(err):
		return fmt.Errorf("the database did not answer in time: %w", err)
	default:
		return fmt.Errorf("the database: %w", err)
	}
}
