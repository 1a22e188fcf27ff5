package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
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
		var written []string
		for i := range 4 {
			fmt.Fprintf(g, "line %d\n", i)
			synctest.Wait() // the first is on its way
		}
		written = append(written, <-w, <-w)
		if diff := cmp.Diff([]string{"line 0\n", "line 1\nline 2\nline 3\n"}, written); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
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
		go func() {
			defer close(ended)
			for range 3000 {
				g.Write(kilobyte)
				logged++
			}
		}()
		synctest.Wait()
		if logged < 1000 || logged > 2100 { // at most so much on its way, and as much behind it
			t.Errorf("%d KB were taken that nobody reads, want 1 to 2 MB", logged)
		}
		got := 0
		for got < 3000*1024 {
			got += len(<-w)
		}
		<-ended
		g.Close()
	})
}
