// play plays the parts around hookonce in a cluster test: an application
// (play app), a provider that retries and keeps the books (play provider), and
// a crash of the process next to it (play crash).
package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

func main() {
	switch os.Args[1] {
	case "app":
		serve(app(os.Getenv("BOOKS")))
	case "provider":
		serve((&provider{secret: os.Getenv("SECRET"), books: books{Events: map[string]*event{}}}).handler())
	case "crash":
		// Process 1 of this namespace takes no SIGKILL from inside it; a Go program dies of SIGQUIT at once, just as unprepared.
		if err := syscall.Kill(1, syscall.SIGQUIT); err != nil {
			log.Fatal(err)
		}
	}
}

// serve drains on SIGTERM, as an application should.
func serve(h http.Handler) {
	address := os.Getenv("ADDRESS")
	if address == "" {
		address = ":8000"
	}
	s := &http.Server{Addr: address, Handler: h, ReadHeaderTimeout: time.Minute}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	done := make(chan struct{})
	go func() {
		<-stop.Done()
		log.Print("stopping")
		s.Shutdown(context.Background())
		close(done)
	}()
	log.Print("started")
	if err := s.ListenAndServe(); err != http.ErrServerClosed {
		log.Fatal(err)
	}
	<-done
	log.Print("stopped")
}

// what is one event's body: its id, and how long it takes.
type what struct {
	ID   string `json:"id"`
	Work int    `json:"work_ms"`
}

// app tells the provider's books of every run.
func app(books string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "a page\n") })
	mux.HandleFunc("POST /webhook/stripe", func(w http.ResponseWriter, r *http.Request) {
		var event what
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		ran := fmt.Sprintf("%s/ran?id=%s&prior=%s", books, event.ID, r.Header.Get("Hookonce-Prior-Outcome"))
		response, err := http.Get(ran)
		if err != nil { // nothing has happened, so the event is not accepted
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		response.Body.Close()
		time.Sleep(time.Duration(event.Work) * time.Millisecond)
	})
	return mux
}

// event is one event in the books.
type event struct {
	Accepted bool     // a delivery was answered 2xx
	Runs     []string // what each run was told of those before it
	TwoXX    int
}

type books struct {
	Events map[string]*event
	// Answers counts deliveries by status and outcome, Pages what the rest of the application answered.
	Answers map[string]int
	Pages   map[string]int
}

// provider sends events as Stripe does: signed, again until a 2xx comes, and
// now and then once more for no reason, or twice at a time.
type provider struct {
	secret string

	mu     sync.Mutex
	books  books
	stop   chan struct{}
	events sync.WaitGroup
}

func (p *provider) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ran", func(_ http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if e := p.books.Events[r.FormValue("id")]; e != nil {
			e.Runs = append(e.Runs, r.FormValue("prior"))
		}
	})
	mux.HandleFunc("GET /start", func(_ http.ResponseWriter, r *http.Request) {
		rate, _ := strconv.Atoi(r.FormValue("rate"))
		work, _ := strconv.Atoi(r.FormValue("work_ms"))
		for _, target := range r.Form["target"] {
			await(r.Context(), target)
		}
		p.start(r.Form["target"], rate, work)
	})
	mux.HandleFunc("GET /stop", func(w http.ResponseWriter, _ *http.Request) {
		close(p.stop)
		p.events.Wait()
		p.report(w)
	})
	mux.HandleFunc("GET /once", func(w http.ResponseWriter, r *http.Request) {
		work, _ := strconv.Atoi(r.FormValue("work_ms"))
		p.open(r.FormValue("id"))
		status, outcome := p.deliver(r.FormValue("target"), what{r.FormValue("id"), work})
		fmt.Fprintf(w, "%d %s\n", status, outcome)
	})
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, _ *http.Request) { p.report(w) })
	return mux
}

// await waits until a Service answers: a new one is not known to every node at once.
func await(ctx context.Context, target string) {
	for ctx.Err() == nil {
		if response, err := http.Get(target + "/page"); err == nil {
			response.Body.Close()
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (p *provider) open(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.books.Events[id] == nil {
		p.books.Events[id] = &event{}
	}
}

func (p *provider) start(targets []string, rate, work int) {
	p.mu.Lock()
	p.books = books{Events: map[string]*event{}, Answers: map[string]int{}, Pages: map[string]int{}}
	p.stop = make(chan struct{})
	p.mu.Unlock()
	ticks := time.NewTicker(time.Second / time.Duration(rate))
	go func() {
		defer ticks.Stop()
		for n := 0; ; n++ {
			select {
			case <-p.stop:
				return
			case <-ticks.C:
			}
			p.events.Add(1)
			go func() {
				defer p.events.Done()
				p.send(targets, what{fmt.Sprintf("evt_%d_%d", time.Now().UnixNano(), n), work}, n)
			}()
		}
	}()
}

// send delivers an event until it is accepted, for two minutes at most.
func (p *provider) send(targets []string, event what, n int) {
	p.open(event.ID)
	target := func() string { return targets[rand.N(len(targets))] }
	if n%10 == 0 { // twice at a time
		p.events.Add(1)
		go func() {
			defer p.events.Done()
			p.deliver(target(), event)
		}()
	}
	for begun := time.Now(); time.Since(begun) < 2*time.Minute; time.Sleep(time.Second) {
		if status, _ := p.deliver(target(), event); status/100 == 2 {
			break
		}
	}
	if n%5 == 0 { // once more
		p.deliver(target(), event)
	}
	p.page(target())
}

func (p *provider) page(target string) {
	answer := "no answer"
	if response, err := http.Get(target + "/page"); err == nil {
		answer = strconv.Itoa(response.StatusCode)
		response.Body.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.books.Pages[answer]++
}

func (p *provider) deliver(target string, event what) (status int, outcome string) {
	body, _ := json.Marshal(event)
	at := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(p.secret))
	mac.Write([]byte(at + "." + string(body)))
	request, err := http.NewRequest("POST", target+"/webhook/stripe", bytes.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Stripe-Signature", "t="+at+",v1="+hex.EncodeToString(mac.Sum(nil)))
	request.Close = true // a connection for each, so that the Service chooses anew
	if response, err := http.DefaultClient.Do(request); err == nil {
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		status, outcome = response.StatusCode, response.Header.Get("Hookonce-Outcome")
	} else {
		outcome = "no answer"
		log.Print(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.books.Answers != nil {
		p.books.Answers[fmt.Sprintf("%d %s", status, outcome)]++
	}
	if status/100 == 2 {
		p.books.Events[event.ID].Accepted = true
		p.books.Events[event.ID].TwoXX++
	}
	return status, outcome
}

// report is the audit: what was lost, what ran twice, what was answered.
func (p *provider) report(w io.Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := struct {
		Events      int            `json:"events"`
		Lost        int            `json:"lost"`        // never accepted
		NeverRan    int            `json:"never_ran"`   // accepted, but never run
		Twice       int            `json:"twice"`       // run again without being told
		TwiceTold   int            `json:"twice_told"`  // run again, and told that it may have run
		Unaccounted int            `json:"unaccounted"` // answers without an outcome, which hookonce did not give
		Deliveries  map[string]int `json:"deliveries"`
		Pages       map[string]int `json:"pages"`
	}{Events: len(p.books.Events), Deliveries: p.books.Answers, Pages: p.books.Pages}
	for _, e := range p.books.Events {
		if !e.Accepted {
			sum.Lost++
		} else if len(e.Runs) == 0 {
			sum.NeverRan++
		}
		for i, prior := range e.Runs {
			switch {
			case i == 0:
			case prior == "unknown":
				sum.TwiceTold++
			default:
				sum.Twice++
			}
		}
	}
	for answer, n := range p.books.Answers {
		if answer[len(answer)-1] == ' ' {
			sum.Unaccounted += n
		}
	}
	json.NewEncoder(w).Encode(sum)
}
