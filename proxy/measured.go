package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/hookonce/hookonce/proxy/metrics"
	"github.com/hookonce/hookonce/store"
)

// measured is a store whose operations are counted and timed.
type measured struct {
	store   Store
	metrics *metrics.Metrics
}

func (m measured) observe(operation string, begun time.Time, err error) {
	if errors.Is(err, store.ErrLost) || errors.Is(err, store.ErrNotFound) { // an answer, not a fault
		err = nil
	}
	m.metrics.StoreAnswered(operation, time.Since(begun), err)
}

func (m measured) Claim(ctx context.Context, key string, t store.Token) (store.Claim, error) {
	begun := time.Now()
	claim, err := m.store.Claim(ctx, key, t)
	m.observe("claim", begun, err)
	return claim, err
}

func (m measured) Renew(ctx context.Context, key string, t store.Token) error {
	begun := time.Now()
	err := m.store.Renew(ctx, key, t)
	m.observe("renew", begun, err)
	return err
}

func (m measured) Complete(ctx context.Context, key string, t store.Token, status int) error {
	begun := time.Now()
	err := m.store.Complete(ctx, key, t, status)
	m.observe("complete", begun, err)
	return err
}

func (m measured) Release(ctx context.Context, key string, t store.Token) error {
	begun := time.Now()
	err := m.store.Release(ctx, key, t)
	m.observe("release", begun, err)
	return err
}

func (m measured) KeepAnswer(ctx context.Context, key string, t store.Token, a store.Answer) error {
	begun := time.Now()
	err := m.store.KeepAnswer(ctx, key, t, a)
	m.observe("keep_answer", begun, err)
	return err
}

func (m measured) Answer(ctx context.Context, key string) (store.Answer, error) {
	begun := time.Now()
	answer, err := m.store.Answer(ctx, key)
	m.observe("answer", begun, err)
	return answer, err
}

func (m measured) EndLease(ctx context.Context, key string, t store.Token) error {
	begun := time.Now()
	err := m.store.EndLease(ctx, key, t)
	m.observe("end_lease", begun, err)
	return err
}
