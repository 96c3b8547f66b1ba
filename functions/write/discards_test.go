package write_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/functions/write"
	"weir/internal/bulk"
	"weir/internal/lane"
	"weir/internal/weir"
)

// discardable implements write.Discarder and write.ManyDiscarder, and records the arguments of all
// calls. The first call of DiscardDead reports that the discard must be continued. A call that
// continues from the position which the first call returned reports that the discard is complete.
type discardable struct {
	pauses             // has the method Call
	stage   weir.Stage // the stage in the status that Discard returns
	reasons []string
	filters []bulk.Selection
	places  []bulk.Position
	err     error // the error that both methods return
}

func (f *discardable) Discard(_ context.Context, id weir.ID, reason string) (weir.Status, error) {
	f.reasons = append(f.reasons, reason)
	return weir.Status{Message: weir.Message{ID: id}, Stage: f.stage}, f.err
}

func (f *discardable) DiscardDead(_ context.Context, filter bulk.Selection,
	from bulk.Position, _ int,
	reason string, dryRun bool) (bulk.Counts, bulk.Position, bool, error) {
	f.filters, f.places, f.reasons = append(f.filters, filter), append(f.places, from),
		append(f.reasons, reason)
	counts := bulk.Counts{Selected: 3}
	if !dryRun {
		counts.BulkCounts, counts.Lanes = lane.BulkCounts{Asked: 2, TooLate: 1}, []int{2}
	}
	return counts, bulk.Position{Lane: from.Lane, Seq: 7}, from.Seq == 7, f.err
}

func (f *discardable) post(path, body string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)),
		httptest.NewRecorder()
	r.Header.Set("Content-Type", "application/json")
	mux := http.NewServeMux()
	mux.Handle("POST /api/messages/{id}/discard", &write.Discard{Log: f, Waker: f, Logger: quiet})
	mux.Handle("POST /api/discards",
		&write.Discards{Log: f, Waker: f, Lanes: 3, Now: now, Logger: quiet})
	mux.ServeHTTP(w, r)

	return w
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	id := weir.ID{Epoch: 1, Lane: 2, Seq: 3, Nonce: "00000000000000000000"}.String()
	conflict := &weir.Error{Kind: weir.Conflict, Message: "not dead"}
	for name, c := range map[string]struct {
		log    *discardable
		query  string
		status int
		reason string
	}{
		"Dead":      {&discardable{stage: weir.Dead}, "?reason=+gone+", 202, "gone"},
		"Discarded": {&discardable{stage: weir.Discarded}, "", 200, ""},
		"Refused":   {&discardable{err: conflict}, "?reason=x", 409, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := c.log.post("/api/messages/"+id+"/discard"+c.query, "")
			if w.Code != c.status || len(c.log.reasons) != 1 || c.log.reasons[0] != c.reason {
				t.Errorf("got %d with the reasons %q, want %d with %q", w.Code, c.log.reasons,
					c.status, c.reason)
			}
		})
	}

	f := &discardable{}
	if w := f.post("/api/messages/"+id+"/discard?reason="+strings.Repeat("x", 501), ""); w.Code !=
		422 {
		t.Errorf("got %d for a long reason, want 422", w.Code)
	}

	if w := f.post("/api/messages/none/discard", ""); w.Code != 404 || len(f.reasons) > 0 {
		t.Errorf("got %d for an unknown id and %d calls, want 404 and none", w.Code, len(f.reasons))
	}
}

func TestDiscards(t *testing.T) {
	t.Parallel()
	number, from := 2, time.Date(2026, 3, 4, 5, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		body   string
		status int
		want   bulk.Selection
		path   string // the path of the problem in the answer; "" = no problem
	}{
		"All": {`{"filter":{"all":true}}`, 202, bulk.Selection{To: now()}, ""},
		"Fingerprint": {`{"filter":{"fingerprint":"8239b7e33e57"}}`, 202,
			bulk.Selection{Fingerprint: "8239b7e33e57", To: now()}, ""},
		"Everything": {`{"filter":{"key":"/a","contract":"article","lane":2,"from":"2026-03-04T06:00:00+01:00","to":"2026-03-04T05:01:00Z"}}`, 202, bulk.Selection{Key: "/a", Contract: "article", Lane: &number, From: from, To: from.Add(time.Minute)}, ""},
		"DryRun": {`{"filter":{"key":"/a"},"dryRun":true}`, 200,
			bulk.Selection{Key: "/a", To: now()}, ""},
		"NoFilter":   {`{}`, 422, bulk.Selection{}, "filter"},
		"AllAndMore": {`{"filter":{"all":true,"key":"/a"}}`, 422, bulk.Selection{}, "filter.all"},
		"EmptyKey":   {`{"filter":{"key":""}}`, 422, bulk.Selection{}, "filter.key"},
		"NoSuchLane": {`{"filter":{"lane":3}}`, 422, bulk.Selection{}, "filter.lane"},
		"EmptySpan": {`{"filter":{"from":"2026-03-04T05:00:00Z","to":"2026-03-04T05:00:00Z"}}`, 422,
			bulk.Selection{},
			"filter.to"},
		"ToInTheYear10000": {`{"filter":{"key":"/a","to":"9999-12-31T23:59:59-01:00"}}`, 422,
			bulk.Selection{}, "filter.to"},
		"LongReason": {`{"filter":{"all":true},"reason":"` + strings.Repeat("x", 501) + `"}`, 422,
			bulk.Selection{}, "reason"},
		"NoContinue": {`{"filter":{"all":true},"continue":"x"}`, 422, bulk.Selection{}, "continue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &discardable{}
			w := f.post("/api/discards", c.body)
			if w.Code != c.status ||
				c.path != "" && !strings.Contains(w.Body.String(), `"path":"`+c.path+`"`) {
				t.Fatalf("got %d %s, want %d with a problem of %q", w.Code, w.Body,
					c.status, c.path)
			}

			if c.path != "" {
				return
			}

			got, want := f.filters[0], c.want
			if (got.Lane == nil) != (want.Lane == nil) ||
				got.Lane != nil && *got.Lane != *want.Lane {
				t.Errorf("got lane %v, want %v", got.Lane, want.Lane)
			}

			got.Lane, want.Lane = nil, nil
			if got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestDiscards_Continue(t *testing.T) {
	t.Parallel()
	f := &discardable{}
	var answer struct {
		Selected, Asked, TooLate int
		Complete                 bool
		Continue                 string
	}

	w := f.post("/api/discards", `{"filter":{"key":"/a"},"reason":" old "}`)
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Selected != 3 ||
		answer.Asked != 2 ||
		answer.TooLate != 1 || answer.Complete || f.reasons[0] != "old" {
		t.Fatalf("got %s, %v for the reason %q, want the counts of the first step and the reason old", w.Body, err,
			f.reasons)
	}

	answer.Complete = false
	w = f.post("/api/discards", `{"filter":{"key":"/a"},"continue":"`+answer.Continue+`"}`)
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || !answer.Complete ||
		f.places[1].Seq != 7 ||
		!f.filters[1].To.Equal(now()) {
		t.Errorf("got %s, %v with the positions %+v and the filter's end %s; want a complete walk, continued at 7, "+
			"and the time of the first request as the filter's end", w.Body, err, f.places,
			f.filters[1].To)
	}

	f.err = errors.New("storage")
	if w := f.post("/api/discards", `{"filter":{"key":"/a"}}`); w.Code != 500 {
		t.Errorf("got %d after an error, want 500", w.Code)
	}
}
