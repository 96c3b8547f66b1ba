package app

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/trial"
	"weir/internal/weir"
)

const previewed = `
delivery: { url: "%s/api?key=secret-key", signIn: { bearer: secret-token }, headers: { X-Api-Key: short } }
contracts:
  - name: article
    root: article
    key: ./@id
    steps:
      - { name: find, get: "/items?ref={{ key }}" }
      - { name: create, when: len(find.json) == 0, post: /items, json: { title: "{{ text('./title') }}" } }
`

// The page with the requests of a message must show no secret, because the key of functions/view is enough to see the
// page. The page must send no request.
func TestPageSource_Try(t *testing.T) {
	t.Parallel()
	cms := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the CMS got %s %s, want no request", r.Method, r.URL)
	}))
	t.Cleanup(cms.Close)
	r := newTestRunningWith(t, fmt.Sprintf(previewed, cms.URL))
	if err := r.store.EnsureControlRows(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}
	m, err := r.contracts.Accept(t.Context(), "text/xml", []byte("<article id='/a'><title>T</title></article>"))
	if err != nil {
		t.Fatal(err)
	}
	// AppendWithoutWake wakes no drainer, so no holder delivers the message during the test.
	filed, err := r.appender.AppendWithoutWake(t.Context(), m, "")
	if err != nil {
		t.Fatal(err)
	}
	id := filed.Message.Public()
	got, err := (&pageSource{r}).Try(t.Context(), id, false)
	if err != nil || got.Verdict != trial.Open || len(got.Steps) != 2 {
		t.Fatalf("got %+v and %v, want two steps", got, err)
	}
	text := got.FormatText()
	for _, want := range []string{"GET " + cms.URL + "/api/items?key=…&ref=%2Fa\n", "X-Api-Key: …\n",
		`"title": "T"`,
		"Weir-Attempt: 1\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %q in it", text, want)
		}
	}
	page := httptest.NewRecorder()
	r.handler.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/api/dashboard/messages/"+id.String(), nil))
	if page.Code != http.StatusOK || !strings.Contains(page.Body.String(), "Requests it would make") ||
		strings.Contains(text+page.Body.String(), "secret-") ||
		strings.Contains(text+page.Body.String(), "X-Api-Key: short") {
		t.Errorf("got %d and\n%s\n%s\nwant 200 with the requests, and no secret", page.Code, text, page.Body)
	}
	if _, err := (&pageSource{r}).Try(t.Context(), id, true); weir.KindOf(err) != weir.NotFound {
		t.Errorf("Try of a message that was not edited: got %v, want NotFound", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := (&pageSource{r}).Try(ended, id, false); err == nil && got.Verdict != trial.CutOff {
		t.Errorf("Try after the request ended = %+v, want an error or the verdict %s", got, trial.CutOff)
	}
}
