package main

import (
	"io"
	"log/slog"
	"sync"
)

// logger writes to w, as LOG_LEVEL and LOG_FORMAT say.
func (c *Config) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	level.UnmarshalText([]byte(c.LogLevel)) // validated with the rest of the configuration
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// maxGathered is how many bytes of log may wait before whoever logs waits, too.
const maxGathered = 1 << 20

// gatherer writes in the background: whatever has come while one write was
// under way is the next one, and nothing waits for a timer. A line then costs a
// delivery no system call.
type gatherer struct {
	w       io.Writer
	mu      sync.Mutex
	changed sync.Cond
	waiting []byte
	writing bool
	closed  bool
}

func newGatherer(w io.Writer) *gatherer {
	g := &gatherer{w: w}
	g.changed.L = &g.mu
	go g.run()
	return g
}

// Write takes a line; it never fails.
func (g *gatherer) Write(line []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.waiting) > maxGathered {
		g.changed.Wait()
	}
	g.waiting = append(g.waiting, line...)
	g.changed.Broadcast()
	return len(line), nil
}

func (g *gatherer) run() {
	var lines []byte
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		for len(g.waiting) == 0 {
			if g.closed {
				return
			}
			g.changed.Wait()
		}
		lines, g.waiting = g.waiting, lines[:0]
		g.writing = true
		g.mu.Unlock()
		g.w.Write(lines) //nolint:errcheck // there is nowhere to say that the log cannot be written
		g.mu.Lock()
		g.writing = false
		g.changed.Broadcast()
	}
}

// Close returns once everything is written.
func (g *gatherer) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.changed.Broadcast()
	for g.writing || len(g.waiting) > 0 {
		g.changed.Wait()
	}
}
