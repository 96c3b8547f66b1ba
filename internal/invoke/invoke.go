// Package invoke speaks the Functions host's wire format for what is not HTTP: queue and
// timer triggers come as POST /<Function> with a JSON payload, and the answer decides
// about the message.
//
// Strings in the payload are encoded twice (a JSON string that holds a JSON string);
// newer hosts may encode them once, so both are read. An answer is always a JSON object
// with its content type: an empty 2xx would hang the invocation until its timeout, and
// another content type would fail it.
package invoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
)

// maxPayload is far above what a queue message of 64 KiB becomes when encoded.
const maxPayload = 1 << 20

// Invocation is one call by the host.
type Invocation struct {
	ID       string                     `json:"-"`
	Data     map[string]json.RawMessage `json:"Data"`
	Metadata map[string]json.RawMessage `json:"Metadata"` // not to be trusted: a message's fields can overwrite it
}

// Timer is what a timer trigger carries.
type Timer struct {
	IsPastDue bool `json:"IsPastDue"`
}

// Decode reads a payload.
func Decode(r io.Reader) (Invocation, error) {
	var in Invocation
	dec := json.NewDecoder(io.LimitReader(r, maxPayload))
	if err := dec.Decode(&in); err != nil {
		return Invocation{}, fmt.Errorf("decode invocation: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Invocation{}, errors.New("decode invocation: text after the payload")
	}
	return in, nil
}

// Text gives the text of a binding, however often it was encoded.
func (in Invocation) Text(binding string) (string, error) { return text(in.Data, binding) }

// Meta gives one metadata value as text; empty when it is not there or is an object. As with
// the host, the name's case does not matter.
func (in Invocation) Meta(name string) string {
	for key := range in.Metadata {
		if strings.EqualFold(key, name) {
			s, _ := text(in.Metadata, key)
			return s
		}
	}
	return ""
}

// Timer gives the value of a timer binding.
func (in Invocation) Timer(binding string) (Timer, error) {
	raw, ok := in.Data[binding]
	if !ok {
		return Timer{}, fmt.Errorf("binding %q: not in the payload", binding)
	}
	var t *Timer
	if err := json.Unmarshal(raw, &t); err != nil {
		return Timer{}, fmt.Errorf("binding %q: %w", binding, err)
	}
	if t == nil {
		return Timer{}, fmt.Errorf("binding %q: null", binding)
	}
	return *t, nil
}

func text(from map[string]json.RawMessage, name string) (string, error) {
	raw, ok := from[name]
	if !ok {
		return "", fmt.Errorf("binding %q: not in the payload", name)
	}
	var once, twice *string // pointers: null is no text, and "null" encoded once is one
	if err := json.Unmarshal(raw, &once); err != nil {
		return "", fmt.Errorf("binding %q: %w", name, err)
	}
	if once == nil {
		return "", fmt.Errorf("binding %q: null", name)
	}
	if err := json.Unmarshal([]byte(*once), &twice); err == nil && twice != nil {
		return *twice, nil
	}
	return *once, nil
}

// answer is what the host wants to hear.
type answer struct {
	Outputs     map[string]any `json:"Outputs"`
	Logs        []string       `json:"Logs"`
	ReturnValue any            `json:"ReturnValue"`
}

// Handler makes a trigger's use-case answer the host. An error fails the invocation: a
// queue message comes again, and in the end goes to the poison queue.
func Handler(function string, log *slog.Logger, do func(ctx context.Context, in Invocation) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Azure-Functions-InvocationId")
		in, err := Decode(r.Body)
		in.ID = id
		if err == nil {
			err = do(r.Context(), in)
		}
		status, out := http.StatusOK, answer{Outputs: map[string]any{}, Logs: []string{}}
		if err != nil {
			log.Error("invoke: failed", "function", function, "invocation_id", id, "dequeue_count", in.Meta("DequeueCount"), "err", err)
			status, out.Logs = http.StatusInternalServerError, []string{function + " failed"}
		}
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(out) // the host is gone when this fails
	})
}
