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

// gatherer makes one write of what many log at once: who finds nobody at it
// writes; whatever comes meanwhile is the next write, and nothing waits for a
// timer. So where it is busy a line costs a delivery no system call.
type gatherer struct {
	w       io.Writer
	mu      sync.Mutex
	changed sync.Cond
	waiting []byte
	writing bool
}

func newGatherer(w io.Writer) *gatherer {
	g := &gatherer{w: w}
	g.changed.L = &g.mu
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
	if g.writing {
		return len(line), nil
	}
	g.writing = true
	if g.write(nil); len(g.waiting) > 0 {
		go g.writeAll() // who logs a line need not write everybody's
	} else {
		g.rest()
	}
	return len(line), nil
}

func (g *gatherer) writeAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	var spare []byte
	for len(g.waiting) > 0 {
		spare = g.write(spare)
	}
	g.rest()
}

// write writes what is waiting, with the lock open meanwhile, and returns its
// buffer; what comes then waits in the spare one.
func (g *gatherer) write(spare []byte) []byte {
	lines := g.waiting
	g.waiting = spare[:0]
	g.mu.Unlock()
	g.w.Write(lines) //nolint:errcheck // there is nowhere to say that the log cannot be written
	g.mu.Lock()
	g.changed.Broadcast()
	return lines
}

func (g *gatherer) rest() {
	g.writing = false
	g.changed.Broadcast()
}

// Close returns once everything is written.
func (g *gatherer) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.writing {
		g.changed.Wait()
	}
}
