package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// budget bounds the bytes that all deliveries hold together.
type budget struct {
	limit int64
	used  atomic.Int64
}

// reservation is one delivery's part of the budget.
type reservation struct {
	budget *budget
	bytes  atomic.Int64
}

// grow takes n more bytes, or says that there are none to be had.
func (r *reservation) grow(n int64) bool {
	if r.budget.used.Add(n) > r.budget.limit {
		r.budget.used.Add(-n)
		return false
	}
	r.bytes.Add(n)
	return true
}

// shrink gives n bytes back.
func (r *reservation) shrink(n int64) {
	r.budget.used.Add(-n)
	r.bytes.Add(-n)
}

// release gives everything back; once is enough, more often does no harm.
func (r *reservation) release() {
	if r != nil {
		r.budget.used.Add(-r.bytes.Swap(0))
	}
}

// firstRead is how much room a body gets before anything of it has come: a
// sender that only announces a large one must not take the budget with it.
const firstRead = 64 << 10

// read reads the body whole: bounded in size, in time, and by what all
// deliveries hold together.
func (h *Handler) read(d *delivery) *ending {
	announced := d.r.ContentLength // -1: unknown
	if announced > h.MaxBody {
		return end(TooLarge)
	}
	conn := http.NewResponseController(d.w)
	conn.SetReadDeadline(time.Now().Add(h.ReadTimeout)) // unsupported only in tests without a connection
	// A body that is not read to its end keeps the deadline: net/http reads on
	// after the answer, and would wait for a sender that stalls.
	defer func() {
		if !d.unread {
			conn.SetReadDeadline(time.Time{})
		}
	}()

	d.buffered = &reservation{budget: &h.buffered}
	room := h.MaxBody + 1
	if announced >= 0 {
		room = announced
	}
	if !d.buffered.grow(min(room, firstRead)) {
		d.unread = false
		return end(Overloaded)
	}
	body := make([]byte, 0, min(room, firstRead))
	for int64(len(body)) < room {
		if len(body) == cap(body) {
			wider := min(2*int64(cap(body)), room)
			// Old and new are both held while one is copied into the other.
			if !d.buffered.grow(wider) {
				d.body, d.size, d.unread = body, len(body), false // in MODE=observe the rest follows as it comes
				return end(Overloaded)
			}
			grown := make([]byte, len(body), wider)
			copy(grown, body)
			d.buffered.shrink(int64(cap(body)))
			body = grown
		}
		n, err := d.r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF {
			break
		}
		if err != nil {
			return unreadable(d, err)
		}
	}
	if int64(len(body)) > h.MaxBody {
		return end(TooLarge)
	}
	d.body, d.size, d.unread = body, len(body), false
	return nil
}

// discardFor bounds how long the rest of a refused body is listened to.
const discardFor = 5 * time.Second

// discard reads on, into nothing, for a while: many senders write all of a body
// before they read the answer, and would see a broken connection instead of it.
func (h *Handler) discard(d *delivery) {
	if d.r.Header.Get("Expect") != "" {
		return // it waits to be asked for the body
	}
	conn := http.NewResponseController(d.w)
	conn.SetReadDeadline(time.Now().Add(min(discardFor, h.ReadTimeout)))
	io.CopyN(io.Discard, d.r.Body, h.MaxBody) //nolint:errcheck // as much as comes
}

// unreadable says how a delivery ends whose body could not be read.
func unreadable(d *delivery, err error) *ending {
	d.w.Header().Set("Connection", "close") // where the next request would begin is unknown
	var network *net.OpError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return end(BadRequest).with(http.StatusRequestTimeout, "The body did not arrive in time.").why("too_slow").because(err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return end(BadRequest).with(0, "The body is shorter than announced: it was cut off.").why("cut_off").because(err)
	case d.r.Context().Err() != nil, errors.As(err, &network):
		return end(ClientGone).because(err)
	default:
		return end(BadRequest).with(0, "The body's framing is malformed.").why("malformed_framing").because(err)
	}
}
