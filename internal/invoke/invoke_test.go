package invoke_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/invoke"
)

// Payloads of a real host, which encodes strings twice.
const (
	queuePayload = `{"Data":{"ticket":"\"weir lane 1.0\""},"Metadata":{"DequeueCount":"1","Id":"\"9f2c1c0e\"","sys":{"MethodName":"process"}}}`
	timerPayload = `{"Data":{"timer":{"Schedule":{"AdjustForDST":true},"ScheduleStatus":null,"IsPastDue":true}},"Metadata":{"sys":{"MethodName":"sweep"}}}`
)

func TestInvocation_Text(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		queuePayload:                                   "weir lane 1.0",
		`{"Data":{"ticket":"weir lane 1.0"}}`:          "weir lane 1.0",
		`{"Data":{"ticket":"\"a \\\"quoted\\\" ü\""}}`: `a "quoted" ü`,
	} {
		in, err := invoke.Decode(strings.NewReader(payload))
		if err != nil {
			t.Fatal(err)
		}

		if got, err := in.Text("ticket"); got != want || err != nil {
			t.Errorf("%s: got %q %v, want %v and no error", payload, got, err, want)
		}
	}

	for _, payload := range []string{`{}`, `{"Data":{"other":"x"}}`, `{"Data":{"ticket":{"a":1}}}`,
		`{"Data":{"ticket":7}}`} {
		in, err := invoke.Decode(strings.NewReader(payload))
		if err != nil {
			t.Fatal(err)
		}

		if got, err := in.Text("ticket"); err == nil {
			t.Errorf("%s: got %q, want an error", payload, got)
		}
	}
}

func TestInvocation_Timer(t *testing.T) {
	t.Parallel()
	in, err := invoke.Decode(strings.NewReader(timerPayload))
	if err != nil {
		t.Fatal(err)
	}

	if timer, err := in.Timer("timer"); err != nil || !timer.IsPastDue {
		t.Errorf("got %+v %v, want IsPastDue true and no error", timer, err)
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	for name, c := range map[string]struct {
		body   string
		err    error
		status int
	}{
		"OK":      {queuePayload, nil, 200},
		"Failed":  {queuePayload, errors.New("storage is away"), 500},
		"NotJSON": {"hello", nil, 500}, "Empty": {"", nil, 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			invoke.Handler("process", log, func(context.Context, invoke.Invocation) error { return c.err }).
				ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/process",
					strings.NewReader(c.body)))
			var out map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || out == nil {
				t.Errorf("got %q, want a JSON object", w.Body)
			}

			if w.Code != c.status ||
				!strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") ||
				strings.Contains(w.Body.String(), "storage") {
				t.Errorf(`got %d %v %s, want status %v, Content-Type to begin with "application/json" and no `+
					`"storage"`, w.Code, w.Header(), w.Body, c.status)
			}
		})
	}
}
