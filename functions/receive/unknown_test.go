package receive_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// The function refuses unknown parameters, unknown headers that begin with Weir- or Weir_, and
// other spellings of its headers. Otherwise a misspelt due time would have no effect, and an
// embargoed message would be delivered at once; and repeats with a misspelt Idempotency-Key would
// become several messages.
func TestFunction_RefusesUnknownNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		header, query string
		want          string // the beginning of the problem's detail; "" = the post is accepted
	}{
		{"Weir-DeliverAt", "", "there is no header Weir-Deliverat; did you mean Weir-Deliver-At?"},
		{"weir-deliver-after", "", ""},
		{"Weir_Deliver_At", "",
			"there is no header Weir_deliver_at; did you mean Weir-Deliver-At?"},
		{"Weir-Calback", "", "there is no header Weir-Calback; did you mean Weir-Callback?"},
		{"Weir-Key", "",
			"there is no header Weir-Key; possible are Weir-Deliver-At, Weir-Deliver-After, Weir-Callback"},
		{"X-Weir-Trace", "", ""},
		{"Weirdness", "", ""},
		{"Idempotency_Key", "",
			"there is no header Idempotency_key; did you mean Idempotency-Key?"},
		{"IdempotencyKey", "", "there is no header Idempotencykey; did you mean Idempotency-Key?"},
		{"X-Idempotency-Key", "",
			"there is no header X-Idempotency-Key; did you mean Idempotency-Key?"},
		{"Idempotent-Key", "", "there is no header Idempotent-Key; did you mean Idempotency-Key?"},
		{"Idempotancy-Key", "",
			"there is no header Idempotancy-Key; did you mean Idempotency-Key?"},
		{"Deliver-At", "", "there is no header Deliver-At; did you mean Weir-Deliver-At?"},
		{"Delivery-At", "", "there is no header Delivery-At; did you mean Weir-Deliver-At?"},
		{"X-Deliver-After", "",
			"there is no header X-Deliver-After; did you mean Weir-Deliver-After?"},
		{"X-Weir-Deliver-At", "",
			"there is no header X-Weir-Deliver-At; did you mean Weir-Deliver-At?"},
		{"WeirDeliverAt", "", "there is no header Weirdeliverat; did you mean Weir-Deliver-At?"},
		{"Callback", "", "there is no header Callback; did you mean Weir-Callback?"},
		{"Delivered-To", "", ""},
		{"X-GitHub-Delivery", "", ""},
		{"X-Request-Id", "", ""},
		{"X", "", ""},
		{"", "deliverat=2030-01-31T08:00:00Z",
			"there is no query parameter deliverat; did you mean deliverAt?"},
		{"", "deliver_after=90s",
			"there is no query parameter deliver_after; did you mean deliverAfter?"},
		{"", "wait=3", "there is no query parameter wait; possible are deliverAt, deliverAfter, code, clientId"},
		{"", "deliverAfter=90s&clientId=default&code=s3cret", ""},
		{"", strings.Repeat("x", 80) + "=1",
			"there is no query parameter " + strings.Repeat("x", 60) + "…; possible are"},
	} {
		f := &fake{}
		w := serveReceive(f, func(r *http.Request) {
			if c.header != "" {
				r.Header.Set(c.header, "90s")
			}
			if c.query != "" {
				r.URL.RawQuery = c.query
			}
		})

		if c.want == "" {
			if w.Code != http.StatusAccepted {
				t.Errorf("header %q, query %q: got %d, want 202", c.header, c.query, w.Code)
			}
			continue
		}

		var problem struct{ Detail string }
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
			t.Fatal(err)
		}

		if w.Code != http.StatusBadRequest || !strings.HasPrefix(problem.Detail, c.want) ||
			f.message.Body != nil {
			t.Errorf("header %q, query %q: got %d %q, filed %q; want 400 %q and nothing filed",
				c.header, c.query, w.Code,
				problem.Detail, f.message.Body, c.want)
		}
	}
}
