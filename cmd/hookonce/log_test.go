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
		go fmt.Fprintln(g, "line 0")
		synctest.Wait() // it is on its way
		for i := range 3 {
			fmt.Fprintf(g, "line %d\n", i+1)
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
		go fmt.Fprintln(g, "first")
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
		go g.Write(kilobyte)
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
