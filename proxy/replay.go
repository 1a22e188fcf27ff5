package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/hookonce/hookonce/store"
)

// maxKept is the largest answer that is kept to be given again, in bytes.
const maxKept = 64 << 10

// keepAnswer keeps the upstream's answer with the key, before the claim
// completes: some providers act on what they are answered, and their repeats
// have to get the same. Without it the repeats get the plain answer.
func (a *attempt) keepAnswer(response *http.Response) {
	defer a.impatient(response.Body).Stop()
	start, err := io.ReadAll(io.LimitReader(response.Body, maxKept+1))
	rest := io.Reader(response.Body)
	if err != nil {
		rest = broken{err}
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), rest), response.Body}
	if err == nil && len(start) > maxKept {
		err = errors.New("it is larger than 64 KiB")
	}
	if err == nil {
		err = a.h.Store.KeepAnswer(context.Background(), a.key, a.token, store.Answer{
			Status: response.StatusCode, ContentType: response.Header.Get("Content-Type"), Body: start})
	}
	if err != nil {
		a.h.Log.Warn("the answer could not be kept: repeats of this event get the plain one",
			"webhook", a.hook.Name, "key", a.key, "error", err.Error())
	}
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// replay gives a duplicate the first answer again, if there is one.
func (h *Handler) replay(d *delivery) bool {
	if !d.hook.Replay {
		return false
	}
	kept, err := h.Store.Answer(context.WithoutCancel(d.r.Context()), d.key)
	if err != nil {
		if !errors.Is(err, store.ErrNotFound) {
			h.Log.Warn("the first answer cannot be had, the repeat gets the plain one", "webhook", d.hook.Name, "key", d.key, "error", err.Error())
		}
		return false
	}
	d.status = kept.Status
	header := d.w.Header()
	header["Content-Type"] = nil
	if kept.ContentType != "" {
		header.Set("Content-Type", kept.ContentType)
	}
	if kept.Status != http.StatusNoContent {
		header.Set("Content-Length", strconv.Itoa(len(kept.Body)))
	}
	d.w.WriteHeader(kept.Status)
	d.w.Write(kept.Body)
	return true
}
