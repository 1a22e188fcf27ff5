package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/hookonce/hookonce/store"
)

var errTODO = errors.New("not written yet")

// Store keeps events; see package store.
type Store struct{ o store.Options }

// Open parses and checks a URL (postgres://…); it does not wait for a connection.
func Open(url string, o store.Options) (*Store, error) { return &Store{o: o}, nil }

func (s *Store) Claim(ctx context.Context, key string, t store.Token) (store.Claim, error) {
	return store.Claim{}, errTODO
}
func (s *Store) Renew(ctx context.Context, key string, t store.Token) error { return errTODO }
func (s *Store) Complete(ctx context.Context, key string, t store.Token, status int) error {
	return errTODO
}
func (s *Store) Release(ctx context.Context, key string, t store.Token) error  { return errTODO }
func (s *Store) EndLease(ctx context.Context, key string, t store.Token) error { return errTODO }
func (s *Store) Event(ctx context.Context, key string) (store.Event, error) {
	return store.Event{}, errTODO
}
func (s *Store) Events(ctx context.Context, state store.State, limit int) ([]store.Event, error) {
	return nil, errTODO
}
func (s *Store) ReleaseEvent(ctx context.Context, key string, force bool) error  { return errTODO }
func (s *Store) CompleteEvent(ctx context.Context, key string, force bool) error { return errTODO }
func (s *Store) PassEvent(ctx context.Context, key string) error                 { return errTODO }
func (s *Store) HeldCount(ctx context.Context) (int, error)                      { return 0, errTODO }
func (s *Store) Cleanup(ctx context.Context, retention time.Duration) (store.Cleaned, error) {
	return store.Cleaned{}, errTODO
}
func (s *Store) Migrate(ctx context.Context, adopt bool) error { return errTODO }
func (s *Store) CheckSchema(ctx context.Context) error         { return errTODO }
func (s *Store) Ping(ctx context.Context) error                { return errTODO }
func (s *Store) Stats() store.Stats                            { return store.Stats{} }
func (s *Store) Close()                                        {}
