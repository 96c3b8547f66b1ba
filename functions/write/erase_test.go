package write_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/functions/write"
	"weir/internal/lane"
	"weir/internal/weir"
)

// erasable implements the interfaces of write.Erase except Files, for one message. It records all
// calls except those of Status.
type erasable struct {
	stage      weir.Stage
	erased     bool
	redactFail error // the error that Redact returns
	calls      []string
}

func (f *erasable) Status(_ context.Context, id weir.ID) (weir.Status, error) {
	st := weir.Status{Message: weir.Message{ID: id, Key: "/jane"}, Stage: f.stage}
	if f.erased {
		st.Message.Key, st.ErasedAt = lane.ErasedKey("/jane"), now()
	}
	return st, nil
}

func (f *erasable) Erase(ctx context.Context, id weir.ID) (weir.Status, error) {
	f.calls = append(f.calls, "erase")
	if !f.stage.Final() {
		return weir.Status{}, &weir.Error{Kind: weir.Conflict, Message: "cancel it first"}
	}
	f.erased = true
	return f.Status(ctx, id)
}

func (f *erasable) Redact(_ context.Context, subject, erasedKey string) error {
	f.calls = append(f.calls, "redact "+subject+" "+erasedKey)
	return f.redactFail
}

func (f *erasable) Ring(int) { f.calls = append(f.calls, "call") }

func TestErase(t *testing.T) {
	t.Parallel()
	id := weir.ID{Epoch: 1, Lane: 2, Seq: 3, Nonce: "00000000000000000000"}
	redact := "redact " + id.String() + " " + lane.ErasedKey("/jane")
	for name, c := range map[string]struct {
		log    erasable
		status int
		text   string
		calls  []string
	}{
		"Final": {erasable{stage: weir.Dead}, 200, `"erasedAt":"` + now().Format(time.RFC3339),
			[]string{redact, "erase", "call"}},
		"Again": {erasable{stage: weir.Dead, erased: true}, 200, lane.ErasedKey("/jane"),
			[]string{redact, "erase", "call"}},
		"Waits": {erasable{stage: weir.Queued}, 409, "cancel it first", []string{"erase"}},
		"AuditAway": {erasable{stage: weir.Dead,
			redactFail: &weir.Error{Kind: weir.Unavailable, Message: "away"}}, 503,
			"away", []string{redact}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := c.log
			mux := http.NewServeMux()
			mux.Handle("/api/messages/{id}/erase",
				&write.Erase{Messages: &f, Log: &f, Audit: &f, Waker: &f, Logger: quiet})
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost,
				"/api/messages/"+id.String()+"/erase", nil))

			if w.Code != c.status || !strings.Contains(w.Body.String(), c.text) ||
				!slices.Equal(f.calls, c.calls) {
				t.Errorf("got %d %s after %v, want %d %s after %v", w.Code, w.Body, f.calls,
					c.status, c.text, c.calls)
			}
		})
	}
}

// files is a write.Files that records its calls in log.calls.
type files struct {
	log  *erasable
	fail error // the error that EraseMessage returns
}

func (f files) EraseMessage(_ context.Context, id string, _ time.Time) error {
	f.log.calls = append(f.log.calls, "file "+id)
	return f.fail
}

// Weir removes the file of a message before it erases the message, and once more afterwards,
// because a collector can write the file meanwhile. If the file cannot be removed, Weir does not
// erase the message, and the client can repeat the request.
func TestErase_RemovesTheFileFirst(t *testing.T) {
	t.Parallel()
	id := weir.ID{Epoch: 1, Lane: 2, Seq: 3, Nonce: "00000000000000000000"}
	redact := "redact " + id.String() + " " + lane.ErasedKey("/jane")
	for name, c := range map[string]struct {
		fail   error
		status int
		calls  []string
	}{
		"Removed": {nil, 200,
			[]string{redact, "file " + id.String(), "erase", "file " + id.String(), "call"}},
		"NotRemoved": {errors.New("away"), 503, []string{redact, "file " + id.String()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &erasable{stage: weir.Dead}
			mux := http.NewServeMux()
			mux.Handle("/api/messages/{id}/erase",
				&write.Erase{Messages: log, Log: log, Audit: log, Waker: log, Logger: quiet,
					Files: files{log, c.fail}})
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost,
				"/api/messages/"+id.String()+"/erase", nil))

			if w.Code != c.status || !slices.Equal(log.calls, c.calls) {
				t.Errorf("got %d and the calls %q, want %d and %q", w.Code, log.calls,
					c.status, c.calls)
			}
		})
	}
}
