// Package store is the vocabulary of the events table, in which hookonce keeps
// which events have run: claim, lease, token, state. The stores themselves are
// in store/postgres (production, any number of replicas) and store/sqlite (one
// replica, embedded); store/storetest is their contract.
//
// # What the database decides
//
// Everything: who has a key, until when, and what became of it. A process
// remembers only what it is at work on. All times are the database's own, so
// that the clocks of replicas do not matter.
//
// # The life of a claim
//
// A row is one event. Its state is never stored; it follows from the lease.
//
//	                         Claim
//	                           │ INSERT … ON CONFLICT DO NOTHING
//	                           ▼
//	           Renew ┌──▶ in_flight ───────── Complete ──────────▶ done
//	                 └────── │  │ │              (2xx)             ▲  │
//	                         │  │ └─ Release ─▶ (row deleted*)     │  │
//	                         │  │                                  │  │ PassEvent,
//	        EndLease (sent,  │  │ the lease runs out               │  │ ReleaseEvent by force
//	        but no answer)   │  │ (crash)                          │  │
//	                         ▼  ▼               Complete, late,    │  │
//	                       unknown ─────────────CompleteEvent──────┤  │
//	                         ▲  │  ▲                               │  │
//	            ReleaseEvent │  │  └───────────────────────────────│──┘
//	                         │  │ Claim: attempt + 1,              │
//	                         │  └─▶ in_flight, told what is known  │
//	                         │                                     │
//	    with Options.Hold:  held ───────────────CompleteEvent──────┘
//
//	* Where an earlier attempt may have run or has run, the row stays, as unknown.
//
//	state      lease_until     hold    a Claim
//	in_flight  in the future   either  is told how long the lease holds
//	done       NULL            false   is a duplicate
//	unknown    in the past     false   takes it over
//	held       in the past     true    waits for a person
//
// # Lease and token
//
// The lease makes sure that a crash loses nothing: it runs out, and the next
// delivery takes the claim over. But a process that was only slow does not know
// that its lease has run out. So each claim has a fencing token of its own, and
// who renews or releases must name it: under an old token that fails with
// ErrLost. That an event has run is a fact, though, whatever the token, and is
// recorded always; else it would run again without need.
//
// The number of the attempt would not do as a token: a release deletes the row,
// and attempts begin at 1 again.
package store
