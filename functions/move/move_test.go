package move_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/functions/move"
	"weir/internal/weir"
)

type fake struct {
	due     time.Time
	version string
	called  int
}

func (f *fake) Reschedule(_ context.Context, id weir.ID, due time.Time,
	version string) (weir.Status, error) {
	f.due, f.version = due, version
	return weir.Status{Message: weir.Message{ID: id, DueAt: due}, Stage: weir.Scheduled,
		Version: `W/"8"`}, nil
}
func (f *fake) Ring(int) { f.called++ }

func TestFunction(t *testing.T) {
	t.Parallel()
	good := `{"deliverAt": "2030-01-31T08:00:00+01:00"}`
	for name, c := range map[string]struct {
		body, match string
		status      int
		version     string
	}{
		"moves":            {good, "", 200, ""},
		"any version":      {good, "*", 200, ""},
		"one version":      {good, `"7"`, 200, `"7"`},
		"weak as answered": {good, `W/"7"`, 200, `"7"`},
		"two versions":     {good, `"7", "8"`, 400, ""},
		"not a version":    {good, `7`, 400, ""},
		"not JSON":         {`deliverAt`, "", 400, ""},
		"empty body":       {``, "", 400, ""},
		"empty object":     {`{}`, "", 400, ""},
		"null":             {`{"deliverAt": null}`, "", 400, ""},
		"another field": {`{"deliverAt": "2030-01-31T08:00:00+01:00", "stage": "dead"}`,
			"", 400, ""},
		"two bodies": {good + good, "", 400, ""},
		"no offset":  {`{"deliverAt": "2030-01-31T08:00:00"}`, "", 400, ""},
		"too large":  {`{"deliverAt": "` + strings.Repeat("2", 5000) + `"}`, "", 413, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{}
			mux := http.NewServeMux()
			mux.Handle("/api/messages/{id}",
				&move.Function{Log: f, Waker: f, Logger: slog.New(slog.DiscardHandler)})
			w, r := httptest.NewRecorder(),
				httptest.NewRequest(http.MethodPatch,
					"/api/messages/"+
						weir.ID{Epoch: 1, Seq: 3, Nonce: "00112233445566778899"}.String(),
					strings.NewReader(c.body))

			if c.match != "" {
				r.Header.Set("If-Match", c.match)
			}

			mux.ServeHTTP(w, r)

			if w.Code != c.status || f.version != c.version || (f.called == 1) != (w.Code == 200) {
				t.Fatalf("got %d %s, version %q and %d calls; want %d, version %q and one call only if 200", w.Code,
					w.Body, f.version, f.called,
					c.status, c.version)
			}

			if w.Code == 200 && (f.due.Format(time.RFC3339) != "2030-01-31T07:00:00Z" ||
				w.Header().Get("ETag") != `"8"`) {
				t.Errorf("got the due time %s and the headers %s; want 2030-01-31T07:00:00Z and ETag \"8\"", f.due,
					w.Header())
			}
		})
	}
}
