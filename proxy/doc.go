// Package proxy makes each webhook event run once, in front of an unmodified
// application (the upstream).
//
// A delivery goes through these steps, in Handler.ServeHTTP and
// Handler.deliver, and ends in exactly one Outcome:
//
//  1. match the request to a webhook; what matches none passes through
//  2. read the body, whole and bounded
//  3. verify the signature over the raw bytes
//  4. let handshakes through unclaimed
//  5. find the event's key
//  6. claim it: done is a duplicate; held by a live claim is in flight, and
//     waited for
//  7. forward it; the upstream call ends neither with the sender nor with a 504
//  8. settle the claim, durably, before the answer goes out
//
// What is promised: an event that has not been processed is never answered
// 2xx; a process that dies loses nothing, because its lease runs out; whoever
// comes back late with an old token can undo nothing; one delivery is at most
// one upstream request.
//
// Where to read on: handler.go (the steps), outcome.go (what an ending means),
// forward.go (the upstream call, and how it settles the claim), and claim.go in
// store/postgres. What stands behind them: attempt.go (a claim's lease while
// the upstream works), settle.go (settling while the store is down), flight.go
// (what this process has in hand).
package proxy
