package main

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hookonce/hookonce/store"
)

// stream says which events are sent.
type stream struct {
	ids  uint64 // so many, over and over; 0: each is new
	sent atomic.Uint64
}

// id is the next event's: 24 bytes.
func (s *stream) id(b []byte) []byte {
	if s.ids > 0 {
		return fmt.Appendf(b, "evt_%020d", s.sent.Add(1)%s.ids)
	}
	t := store.NewToken()
	return hex.AppendEncode(append(b, "evt_"...), t[:10])
}

// load sends deliveries over so many connections, one after the other on each.
// It does as little as a sender can, so that what is measured is the others.
type load struct {
	target            string // URL
	outcome           string // that each answer has to have
	body, connections int
	stream            *stream

	conns []*sender
}

// sample is what one run of a load has seen.
type sample struct {
	rate float64         // answers a second
	took []time.Duration // sorted
}

// quantile is in seconds.
func (s sample) quantile(q float64) float64 { return s.took[int(q*float64(len(s.took)-1))].Seconds() }

// run sends for so long. Whatever is not answered 200 ends the benchmark.
func (l *load) run(b *testing.B, length time.Duration) sample {
	for len(l.conns) < l.connections {
		s, err := l.connect()
		if err != nil {
			b.Fatal(err)
		}
		l.conns = append(l.conns, s)
	}
	begun := time.Now()
	var all sync.WaitGroup
	for _, s := range l.conns {
		all.Go(func() {
			s.took = s.took[:0]
			for time.Since(begun) < length {
				if err := s.send(); err != nil {
					b.Errorf("%s: %v", l.target, err)
					return
				}
			}
		})
	}
	all.Wait()
	elapsed := time.Since(begun)
	if b.Failed() {
		b.FailNow()
	}
	var took []time.Duration
	for _, s := range l.conns {
		took = append(took, s.took...)
	}
	slices.Sort(took)
	return sample{float64(len(took)) / elapsed.Seconds(), took}
}

func (l *load) close() {
	for _, s := range l.conns {
		s.conn.Close()
	}
}

// sender is one connection.
type sender struct {
	stream  *stream
	outcome string // what each answer has to have in Hookonce-Outcome
	conn    net.Conn
	answers *bufio.Reader
	mac     hash.Hash
	request []byte // all of it; id, time and signature are overwritten for each
	id, at  int    // where in the request
	body    int
	took    []time.Duration
}

func (l *load) connect() (*sender, error) {
	target, err := url.Parse(l.target)
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("tcp", target.Host)
	if err != nil {
		return nil, err
	}
	body := append([]byte(`{"id":"evt_00000000000000000000","type":"charge.succeeded","data":"`), bytes.Repeat([]byte("x"), l.body-70)...)
	body = append(body, `"}`...)
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nStripe-Signature: t=",
		target.Path, target.Host, len(body))
	s := &sender{stream: l.stream, outcome: l.outcome, conn: conn, answers: bufio.NewReader(conn), mac: hmac.New(sha256.New, []byte(testSecret)), at: len(head)}
	s.request = fmt.Appendf(nil, "%s%010d,v1=%064d\r\n\r\n", head, 0, 0)
	s.body = len(s.request)
	s.id = s.body + len(`{"id":"`)
	s.request = append(s.request, body...)
	return s, nil
}

func (s *sender) send() error {
	s.stream.id(s.request[s.id:s.id])
	at := strconv.AppendInt(s.request[s.at:s.at], time.Now().Unix(), 10)
	s.mac.Reset()
	s.mac.Write(at)
	s.mac.Write([]byte("."))
	s.mac.Write(s.request[s.body:])
	signature := s.at + len("0123456789,v1=")
	hex.Encode(s.request[signature:], s.mac.Sum(nil))

	begun := time.Now()
	if _, err := s.conn.Write(s.request); err != nil {
		return err
	}
	length, err := s.readHeader()
	if err != nil {
		return err
	}
	_, err = s.answers.Discard(length)
	s.took = append(s.took, time.Since(begun))
	return err
}

// readHeader reads what an answer of known length has before its body, and
// refuses any but the expected one. What net/http takes for that would be a good
// part of all that is measured.
func (s *sender) readHeader() (length int, err error) {
	length = -1
	var status, outcome string
	for {
		line, err := s.answers.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case status == "":
			status = string(line)
		case string(name) == "Content-Length":
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, err
			}
		case string(name) == "Hookonce-Outcome":
			outcome = string(value)
		case len(line) > 0:
		case length < 0 || status != "HTTP/1.1 200 OK" || s.outcome != "" && outcome != s.outcome:
			return 0, fmt.Errorf("answered %q with outcome %q and length %d, want 200 and %q", status, outcome, length, s.outcome)
		default:
			return length, nil
		}
	}
}
