// Package invoke implements the Functions host's wire format for triggers other than HTTP. The host
// sends queue and timer triggers as POST /<Function> with a JSON payload. The status of the answer
// determines whether the host deletes the queue message.
//
// The host encodes strings in the payload twice: the content of a JSON string is another JSON
// string. Newer hosts may encode strings once, so the package accepts both forms. An answer is
// always a JSON object with the content type application/json. After an empty answer with a 2xx
// status, the invocation would hang until its timeout. After an answer with another content type,
// the invocation would fail.
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

// maxPayload is the largest size of a payload, in bytes. The payload of the largest queue message
// (64 KiB) is far smaller.
const maxPayload = 1 << 20

// Invocation is one call by the host.
type Invocation struct {
	// set by Handler from a header, not by Decode
	ID string `json:"-"`
	// the value of each binding, by the name of the binding
	Data map[string]json.RawMessage `json:"Data"`
	// not trusted: if a message is JSON, its fields are here, too
	Metadata map[string]json.RawMessage `json:"Metadata"`
}

// Timer is the payload of a timer trigger.
type Timer struct {
	IsPastDue bool `json:"IsPastDue"`
}

// Decode parses a payload. It returns an error if other text follows the payload.
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

// Text returns the text of a binding. It decodes a text that is encoded once or twice.
func (in Invocation) Text(binding string) (string, error) { return decodeText(in.Data, binding) }

// Meta returns one metadata value as text. The result is empty if the value is missing or not a
// string. Like the host, Meta ignores the case of the name.
func (in Invocation) Meta(name string) string {
	for key := range in.Metadata {
		if strings.EqualFold(key, name) {
			s, _ := decodeText(in.Metadata, key)
			return s
		}
	}
	return ""
}

// Timer returns the value of a timer binding.
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

func decodeText(from map[string]json.RawMessage, name string) (string, error) {
	raw, ok := from[name]
	if !ok {
		return "", fmt.Errorf("binding %q: not in the payload", name)
	}

	// The variables are pointers, so that the JSON value null differs from the empty string. The
	// JSON value null is an error. The JSON string "null" is valid: it is the text null, encoded
	// once.
	var once, twice *string
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

// answer is the answer that the host requires.
type answer struct {
	Outputs     map[string]any `json:"Outputs"`
	Logs        []string       `json:"Logs"`
	ReturnValue any            `json:"ReturnValue"`
}

// Handler returns the handler of a trigger. If the payload cannot be decoded, or the function "do"
// returns an error, the invocation fails. The host then delivers the queue message again. After too
// many failures, the host moves the message to the poison queue.
func Handler(function string, log *slog.Logger,
	do func(ctx context.Context, in Invocation) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Azure-Functions-InvocationId")
		in, err := Decode(r.Body)
		in.ID = id
		if err == nil {
			err = do(r.Context(), in)
		}

		status, out := http.StatusOK, answer{Outputs: map[string]any{}, Logs: []string{}}
		if err != nil {
			log.Error("invoke: failed", "function", function, "invocation_id", id, "dequeue_count",
				in.Meta("DequeueCount"), "err", err)
			status, out.Logs = http.StatusInternalServerError, []string{function + " failed"}
		}

		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(out) // if this fails, the host has disconnected
	})
}
