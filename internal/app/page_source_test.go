package app

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/internal/contract"
	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/lane/rows"
	"weir/internal/storage"
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

// The page with the requests of a message must show no secret, because the key of functions/view is
// enough to see the page. The page must send no request.
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

	m, err := r.contracts.Accept(t.Context(), "text/xml",
		[]byte("<article id='/a'><title>T</title></article>"))
	if err != nil {
		t.Fatal(err)
	}

	// Append wakes no drainer, so no holder delivers the message during the test.
	filed, err := r.appender.Append(t.Context(), m, "")
	if err != nil {
		t.Fatal(err)
	}

	id := filed.Message.Public()
	got, err := (&pageSource{r, httpio.NewTurns(1 << 20)}).Try(t.Context(), id, false)
	if err != nil || got.Verdict != trial.Open || len(got.Steps) != 2 {
		t.Fatalf("got %+v and %v, want two steps", got, err)
	}

	text := got.FormatText()
	for _, want := range []string{"GET " + cms.URL + "/api/items?key=…&ref=%2Fa\n",
		"X-Api-Key: …\n", `"title": "T"`,
		"Weir-Attempt: 1\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("got\n%s\nwant %q in it", text, want)
		}
	}

	page := httptest.NewRecorder()
	r.handler.ServeHTTP(page, httptest.NewRequest(http.MethodGet,
		"/api/dashboard/messages/"+id.String(), nil))

	if page.Code != http.StatusOK ||
		!strings.Contains(page.Body.String(), "Requests it would make") ||
		strings.Contains(text+page.Body.String(), "secret-") ||
		strings.Contains(text+page.Body.String(), "X-Api-Key: short") {
		t.Errorf("got %d and\n%s\n%s\nwant 200 with the requests, and no secret", page.Code,
			text, page.Body)
	}

	contracts := r.contracts
	if r.contracts, err = contract.New([]contract.Definition{{Name: "other", Root: "other"}},
		contract.Limits{MaxBody: 1}); err != nil {
		t.Fatal(err)
	}

	if got, err := (&pageSource{r, httpio.NewTurns(1 << 20)}).Try(t.Context(), id, false); err !=
		nil || got.Verdict != trial.Waits ||
		len(got.Steps) != 0 || !strings.Contains(got.Reason, "article") {
		t.Errorf("Try without the contract: got %+v and %v, want no request, and the contract's name", got, err)
	}

	r.contracts = contracts
	if _, err := (&pageSource{r, httpio.NewTurns(1 << 20)}).Try(t.Context(), id, true); weir.KindOf(err) != weir.NotFound {
		t.Errorf("Try of a message that was not edited: got %v, want NotFound", err)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()

	if got, err := (&pageSource{r, httpio.NewTurns(1 << 20)}).Try(ended, id, false); err == nil &&
		got.Verdict != trial.CutOff {
		t.Errorf("Try after the request ended = %+v, want an error or the verdict %s", got,
			trial.CutOff)
	}
}

// The page of a dead message and the replay without force must agree: the page names an obstacle if
// and only if Weir refuses the replay. Otherwise operators learn to tick Force, which overwrites
// newer content.
func TestPageSource_ReplayObstacle(t *testing.T) {
	t.Parallel()
	r := newTestRunning(t)
	if err := r.store.EnsureControlRows(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}

	holder := newTestHolder(t, r)
	alone, overtaken, copied := holder.append("/alone"), holder.append("/overtaken"),
		holder.append("/copied")
	unsent, newer := holder.append("/unsent"), holder.append("/overtaken")

	for _, e := range []*lane.Entry{alone, overtaken, copied} {
		e.Record(weir.Result{Outcome: weir.OutcomeRejected, Status: http.StatusBadRequest,
			Reason: "no"}, 1, true)
		holder.finish(e, weir.Dead)
	}

	// for example, the message ended three holders, and no attempt was recorded
	holder.finish(unsent, weir.Dead)
	newer.Record(weir.Result{Outcome: weir.OutcomeDelivered, Status: http.StatusOK}, 1, true)
	holder.finish(newer, weir.Delivered)
	holder.blockReplay(copied, "a-message-of-the-earlier-epoch")

	for e, wantObstacle := range map[*lane.Entry]string{alone: "", unsent: "",
		overtaken: newer.Message.Public().String(), copied: "a-message-of-the-earlier-epoch"} {
		id := e.Message.Public().String()
		page := httptest.NewRecorder()
		r.handler.ServeHTTP(page,
			httptest.NewRequest(http.MethodGet, "/api/dashboard/messages/"+id, nil))
		text := page.Body.String()
		isNamed := strings.Contains(text, "A replay needs Force.")
		if page.Code != http.StatusOK || isNamed != (wantObstacle != "") ||
			!strings.Contains(text, wantObstacle) {
			t.Errorf("%s: the page has status %d, and names an obstacle: %t; want 200 and the obstacle %q", e.Message.Key,
				page.Code, isNamed, wantObstacle)
		}

		answer := httptest.NewRecorder()
		r.handler.ServeHTTP(answer,
			httptest.NewRequest(http.MethodPost, "/api/messages/"+id+"/replay", nil))
		want := http.StatusAccepted
		if wantObstacle != "" {
			want = http.StatusConflict
		}

		if answer.Code != want {
			t.Errorf("%s: replay without force: got %d %s, want %d", e.Message.Key, answer.Code,
				answer.Body, want)
		}
	}
}

// testHolder changes the messages of lane 0 as a holder does.
type testHolder struct {
	*running
	t      *testing.T
	writer *lane.Writer
}

func newTestHolder(t *testing.T, r *running) *testHolder {
	t.Helper()
	writer, err := r.store.RaiseFence(t.Context(), 0, "nonce", lane.Tail{}, func(*lane.Tail) {})
	if err != nil {
		t.Fatal(err)
	}
	return &testHolder{r, t, writer}
}

// append appends a message of a key. No holder but h delivers it, because no drainer is woken.
func (h *testHolder) append(key string) *lane.Entry {
	h.t.Helper()
	filed, err := h.appender.Append(h.t.Context(), weir.Message{Contract: "article", Key: key,
		ContentType: "application/xml", Body: []byte("<article/>")}, "")
	if err != nil {
		h.t.Fatal(err)
	}

	e, err := h.store.ReadMessage(h.t.Context(), 0, filed.Message.ID.Seq)
	if err != nil {
		h.t.Fatal(err)
	}

	return e
}

// finish makes a message final. A delivery is recorded as the last one of its key.
func (h *testHolder) finish(e *lane.Entry, stage weir.Stage) {
	h.t.Helper()
	ch, batch := &lane.Change{}, &lane.Transaction{}
	if err := ch.Finish(e, stage, time.Now()); err != nil {
		h.t.Fatal(err)
	}

	if stage == weir.Delivered {
		ch.SaveLastDelivery(e)
	}

	batch.TryAdd(ch)
	if err := h.writer.Commit(h.t.Context(), batch); err != nil {
		h.t.Fatal(err)
	}
}

// blockReplay stores the id of a later message, as a copy of the message has it after a change of
// the number of lanes.
func (h *testHolder) blockReplay(e *lane.Entry, later string) {
	h.t.Helper()
	merge := storage.Op{Kind: storage.Merge, Key: rows.MessageKey(e.Seq()),
		Values: rows.Values(rows.ReplayBlockedBy.Is(later))}
	if _, err := h.store.Table.Transact(h.t.Context(), h.store.Partition(0), []storage.Op{merge}); err != nil {
		h.t.Fatal(err)
	}
}
