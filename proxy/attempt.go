package proxy

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hookonce/hookonce/store"
)

// attempt is one upstream request for a delivery. It may outlive the delivery:
// neither the sender's leaving nor a 504 ends it.
type attempt struct {
	h     *Handler
	d     *delivery // not to be touched once the attempt runs on alone
	hook  *Webhook
	fixed Outcome // of an unclaimed attempt, once the upstream has answered; "" where it is claimed

	key       string // "": there is nothing to settle
	claim     store.Claim
	token     store.Token
	uncertain bool // not won, yet the store may have committed it
	flight    *flight

	renewing sync.Mutex // held while a renewal is under way: it and the settlement must not meet in the store

	mu      sync.Mutex
	asked   time.Time // the lease holds at least Lease from here on
	renewal *time.Timer
	over    bool // being settled: no more renewals

	cancel     context.CancelFunc // ends the upstream request
	conn       *countedConn       // that the request went out on, once connected; nil: it does not count
	before     int64              // what had been written on it before this request
	connected  bool
	body       *bytes.Reader // on its way out
	notRenewed atomic.Bool   // the lease may have run out, so nothing was sent
	runsOn     bool          // answered 504, but the upstream still works on it
}

type attemptKey struct{}

func attemptOf(r *http.Request) *attempt {
	a, _ := r.Context().Value(attemptKey{}).(*attempt)
	return a
}

// newAttempt begins an attempt at a key. A claim that was won is renewed from
// here on, until it is settled.
func (h *Handler) newAttempt(d *delivery, f *flight, token store.Token, claim store.Claim, asked time.Time) *attempt {
	a := &attempt{h: h, d: d, hook: d.hook, key: d.key, flight: f, token: token, claim: claim, asked: asked}
	if claim.Won {
		a.mu.Lock() // renew reads it
		a.renewal = time.AfterFunc(h.Lease/3, a.renew)
		a.mu.Unlock()
	}
	return a
}

// renew extends the lease while the upstream works.
func (a *attempt) renew() {
	ok := a.renewNow()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	if ok {
		a.renewal.Reset(a.h.Lease / 3)
		return
	}
	a.renewal.Reset(a.h.Lease / 10) // the store is down or slow; there is some lease left
}

// renewNow asks the store to renew the lease. A lost claim is not asked for
// again: settling will find out and count it.
func (a *attempt) renewNow() bool {
	a.renewing.Lock()
	defer a.renewing.Unlock()
	a.mu.Lock()
	over := a.over
	a.mu.Unlock()
	if over {
		return false
	}
	asked := time.Now()
	err := a.h.Store.Renew(context.Background(), a.key, a.token)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.asked = asked
		return true
	case errors.Is(err, store.ErrLost) && !a.over:
		a.over = true
		a.h.Log.Warn("the lease was lost while the application works on the event: it may run twice",
			"webhook", a.hook.Name, "key", a.key)
	}
	return false
}

// mayStart says whether the claim surely still holds. A process that was held
// up for a good part of its lease renews first; not renewed is not sent.
func (a *attempt) mayStart() bool {
	if !a.claim.Won {
		return true
	}
	a.mu.Lock()
	fresh := time.Since(a.asked) < a.h.Lease/2
	a.mu.Unlock()
	return fresh || a.renewNow()
}

// settle ends the claim, if there is one. Of an event that was forwarded
// although the store was down, the store hears later that it ran, or may have
// run; else nothing is to be left behind.
func (a *attempt) settle(kind settlementKind, status int) {
	switch {
	case a.key == "":
		return
	case a.fixed != "" && kind == endLease:
		a.h.settler.later(settlement{kind: claimUnknown, hook: a.hook.Name, key: a.key, token: a.token})
		a.abandon()
		return
	case a.fixed != "" && kind == release:
		if a.uncertain {
			a.h.releaseLater(a.key, a.token)
		}
		a.abandon()
		return
	}
	a.mu.Lock()
	a.over = true
	if a.renewal != nil {
		a.renewal.Stop()
	}
	a.mu.Unlock()
	a.renewing.Lock() // a renewal that hangs holds the answer up for a STORE_TIMEOUT
	defer a.renewing.Unlock()
	a.h.settle(settlement{kind: kind, hook: a.hook.Name, key: a.key, token: a.token, status: status,
		flight: a.flight, sure: a.claim.Won && !a.notRenewed.Load()})
}

// abandon leaves a claim that nobody settles to its lease, if it has one.
func (a *attempt) abandon() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.key == "" || a.over {
		return
	}
	a.over = true
	if a.renewal != nil {
		a.renewal.Stop()
	}
	a.h.flights.land(a.key, a.flight, false)
}
