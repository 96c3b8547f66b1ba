package inbox_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/functions/inbox"
)

// collector counts its calls.
type collector struct {
	calls int
	err   error
}

func (c *collector) CollectSoon(context.Context) error { c.calls++; return c.err }

const event = `{"Data":{"event":"\"{\\\"eventType\\\":\\\"Microsoft.Storage.BlobCreated\\\"}\""},"Metadata":{}}`

func TestFunction_LooksAtTheInbox(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		payload        string
		isOff          bool
		err            error
		status, calls  int
		want, wantNone string
	}{
		"Event": {payload: event, status: 200, calls: 1, wantNone: "inbox"},
		"StorageAway": {payload: event, err: errors.New("away"), status: 200, calls: 1,
			want: "left for the next sweep"},
		"Off":    {payload: event, isOff: true, status: 200, want: "intake.files is not set"},
		"NoJSON": {payload: "{", status: 500, want: "invoke: failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			files := &collector{err: c.err}
			f := &inbox.Function{Inbox: files, Logger: slog.New(slog.NewTextHandler(&log, nil))}
			if c.isOff {
				f.Inbox = nil
			}

			w := httptest.NewRecorder()
			f.Handler().ServeHTTP(w,
				httptest.NewRequest(http.MethodPost, "/inbox", strings.NewReader(c.payload)))

			if w.Code != c.status || files.calls != c.calls {
				t.Errorf("got %d and %d looks at the inbox, want %d and %d looks", w.Code,
					files.calls, c.status, c.calls)
			}

			if !strings.Contains(log.String(), c.want) ||
				(c.wantNone != "" && strings.Contains(log.String(), c.wantNone)) {
				t.Errorf("got the log %q, want %q, and not %q", log.String(), c.want, c.wantNone)
			}
		})
	}
}
