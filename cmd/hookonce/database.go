package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/hookonce/hookonce/proxy"
	"github.com/hookonce/hookonce/store"
	"github.com/hookonce/hookonce/store/postgres"
	"github.com/hookonce/hookonce/store/sqlite"
)

// database is what the commands ask of a store, beside what the proxy does.
type database interface {
	proxy.Store
	Event(ctx context.Context, key string) (store.Event, error)
	Events(ctx context.Context, state store.State, limit int) ([]store.Event, error)
	ReleaseEvent(ctx context.Context, key string, force bool) error
	CompleteEvent(ctx context.Context, key string, force bool) error
	PassEvent(ctx context.Context, key string) error
	HeldCount(ctx context.Context) (int, error)
	Cleanup(ctx context.Context, retention time.Duration) (store.Cleaned, error)
	Migrate(ctx context.Context, adopt bool) error
	CheckSchema(ctx context.Context) error
	Stats() store.Stats
	Close()
}

// open chooses the store by its URL. It does not wait for a connection.
func (c *StoreConfig) open(observeBatch func(int)) (database, error) {
	options := store.Options{
		Table:        c.EventsTable,
		Lease:        c.Lease,
		Hold:         c.OnUnknown == "hold",
		Timeout:      c.StoreTimeout,
		BatchSize:    c.batchSize,
		ObserveBatch: observeBatch,
	}
	scheme, _, _ := strings.Cut(c.DatabaseURL, ":")
	var db database
	var err error
	switch scheme {
	case "postgres", "postgresql":
		db, err = postgres.Open(c.DatabaseURL, options)
	case "sqlite":
		db, err = sqlite.Open(c.DatabaseURL, options)
	default:
		err = errors.New("its scheme is neither postgres nor sqlite")
	}
	if err != nil {
		return nil, misuse{fmt.Errorf("DATABASE_URL: %w", err)}
	}
	return db, nil
}

// withStore runs a command on the store that the environment names.
func (p *program) withStore(ctx context.Context, work func(context.Context, *StoreConfig, database) error) error {
	c, err := loadStoreConfig(p.environ)
	if err != nil {
		return err
	}
	db, err := c.open(nil)
	if err != nil {
		return err
	}
	defer db.Close()
	return work(ctx, c, db)
}

// fileThere says whether the embedded store's file exists: a command that only
// looks must not make an empty one in the wrong folder.
func (c *StoreConfig) fileThere() error {
	path, embedded := strings.CutPrefix(c.DatabaseURL, "sqlite:")
	path, _, _ = strings.Cut(strings.TrimPrefix(path, "//"), "?")
	if _, err := os.Stat(path); embedded && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no database at %s: run this where hookonce serves, or set DATABASE_URL as it has it", path)
	}
	return nil
}

// withTable is withStore for commands that need the table as serving does.
func (p *program) withTable(ctx context.Context, work func(context.Context, *StoreConfig, database) error) error {
	c, err := loadStoreConfig(p.environ)
	if err != nil {
		return err
	}
	if err := c.fileThere(); err != nil { // before it is opened, which makes it
		return err
	}
	return p.withStore(ctx, func(ctx context.Context, c *StoreConfig, db database) error {
		if err := db.CheckSchema(ctx); err != nil {
			return err
		}
		return work(ctx, c, db)
	})
}

// prepare brings the schema up to date, or checks that it is.
func (c *StoreConfig) prepare(ctx context.Context, db database) error {
	if c.AutoMigrate {
		return db.Migrate(ctx, c.AdoptTable)
	}
	return db.CheckSchema(ctx)
}
