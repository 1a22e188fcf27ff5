package main

import (
	"io"
	"log/slog"
	"sync"
	"time"
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

// gatherer writes in the background: whatever comes while one write is under
// way is the next one, and nothing waits for a timer. A line then costs a
// delivery no system call. (slog holds a lock while it hands a line over: who
// wrote there would keep all others from logging.) A process that is killed
// loses the lines that wait.
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
	if !g.writing {
		g.writing = true
		go g.write()
	}
	return len(line), nil
}

func (g *gatherer) write() {
	g.mu.Lock()
	defer g.mu.Unlock()
	var lines []byte
	for len(g.waiting) > 0 {
		lines, g.waiting = g.waiting, lines[:0]
		g.mu.Unlock()
		g.w.Write(lines) // there is nowhere to say that the log cannot be written
		g.mu.Lock()
		g.changed.Broadcast()
	}
	g.writing = false
	g.changed.Broadcast()
}

// Close returns once everything is written, or after a second if nobody reads.
func (g *gatherer) Close() {
	written := make(chan struct{})
	go func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		for g.writing {
			g.changed.Wait()
		}
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(time.Second):
	}
}
