package main

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
)

// gatedWriter takes a write when the test lets it.
type gatedWriter chan string

func (w gatedWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

func TestLogLinesThatComeMeanwhileAreOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := make(gatedWriter)
		g := newGatherer(w)
		log := (&Config{LogLevel: "info", LogFormat: "text"}).logger(g)
		var written []string
		for i := range 4 {
			log.LogAttrs(t.Context(), slog.LevelInfo, fmt.Sprint("line ", i))
			synctest.Wait() // the first is on its way
		}
		written = append(written, <-w, <-w)
		if got := []int{strings.Count(written[0], "\n"), strings.Count(written[1], "\n")}; got[0] != 1 || got[1] != 3 {
			t.Errorf("%d and %d lines in the writes, want 1 and 3", got[0], got[1])
		}
		g.Close()
	})
}

func TestLogIsWrittenWholeBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := make(gatedWriter)
		g := newGatherer(w)
		fmt.Fprintln(g, "first")
		synctest.Wait()
		fmt.Fprintln(g, "last")
		closed := make(chan struct{})
		go func() {
			g.Close()
			close(closed)
		}()
		for _, want := range []string{"first\n", "last\n"} {
			synctest.Wait()
			select {
			case <-closed:
				t.Fatalf("closed before %q was written", want)
			default:
			}
			if got := <-w; got != want {
				t.Errorf("wrote %q, want %q", got, want)
			}
		}
		<-closed
	})
}

func TestLogThatNobodyReadsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := make(gatedWriter)
		g := newGatherer(w)
		kilobyte := []byte(strings.Repeat("x", 1023) + "\n")
		logged := 0
		ended := make(chan struct{})
		g.Write(kilobyte)
		synctest.Wait()
		go func() {
			defer close(ended)
			for range 3000 {
				g.Write(kilobyte)
				logged++
			}
		}()
		synctest.Wait()
		if logged < 1000 || logged > 1100 {
			t.Errorf("%d KB were taken that nobody reads, want about 1 MB", logged)
		}
		got := 0
		for got < 3001*1024 {
			got += len(<-w)
		}
		<-ended
		g.Close()
	})
}

func TestLogThatNobodyReadsDoesNotKeepTheProcess(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		w := make(gatedWriter)
		g := newGatherer(w)
		fmt.Fprintln(g, "line")
		synctest.Wait()
		g.Close() // in the bubble's time: a second
		<-w
	})
}
