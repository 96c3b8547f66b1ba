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

// fakeCanceller is a write.ManyCanceller that records the arguments of each call. A call of
// CancelWaiting that begins at lane 0 reports that the cancellation must be continued from lane 1.
// A call that begins at lane 1 reports that the cancellation is complete.
type fakeCanceller struct {
	pauses  // has the method Call
	filters []bulk.Selection
	places  []bulk.Position
	dry     []bool
	err     error // the error that CancelWaiting returns
}

func (f *fakeCanceller) CancelWaiting(_ context.Context, filter bulk.Selection,
	from bulk.Position, _ int, dryRun bool) (bulk.Counts, bulk.Position, bool, error) {
	f.filters, f.places, f.dry = append(f.filters, filter), append(f.places, from),
		append(f.dry, dryRun)
	return bulk.Counts{BulkCounts: lane.BulkCounts{Cancelled: 1, Asked: 1, TooLate: 1}, Selected: 3,
			Lanes: []int{2}},
		bulk.Position{Lane: from.Lane + 1}, from.Lane == 1, f.err
}

func (f *fakeCanceller) postCancellation(body string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(http.MethodPost, "/api/cancellations", strings.NewReader(body)),
		httptest.NewRecorder()
	r.Header.Set("Content-Type", "application/json")
	(&write.Cancellations{Log: f, Waker: f, Lanes: 3, Now: now, Logger: quiet}).ServeHTTP(w, r)
	return w
}

func TestCancellations(t *testing.T) {
	t.Parallel()
	number, from := 2, time.Date(2026, 3, 4, 5, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		body   string
		status int
		want   bulk.Selection
		path   string // the path of the problem in the answer; "" = no problem or no path
	}{
		"All": {`{"filter":{"all":true}}`, 202, bulk.Selection{To: now()}, ""},
		"Key": {`{"filter":{"key":"/a"}}`, 202,
			bulk.Selection{Key: "/a", To: now()}, ""},
		"Everything": {`{"filter":{"keyPrefix":"/a","contract":"article","stage":"queued","lane":2,"from":"2026-03-04T06:00:00+01:00","to":"2026-03-04T05:01:00Z"}}`, 202, bulk.Selection{KeyPrefix: "/a", Contract: "article", Stage: weir.Queued, Lane: &number, From: from, To: from.Add(time.Minute)}, ""},
		"DryRun": {`{"filter":{"key":"/a"},"dryRun":true}`, 200,
			bulk.Selection{Key: "/a", To: now()}, ""},
		"NoFilter":    {`{}`, 422, bulk.Selection{}, "filter"},
		"NoCondition": {`{"filter":{}}`, 422, bulk.Selection{}, "filter"},
		"AllAndMore": {`{"filter":{"all":true,"key":"/a"}}`, 422, bulk.Selection{},
			"filter.all"},
		"EmptyPrefix": {`{"filter":{"keyPrefix":""}}`, 422, bulk.Selection{},
			"filter.keyPrefix"},
		"KeyAndPrefix": {`{"filter":{"key":"/a","keyPrefix":"/"}}`, 422, bulk.Selection{},
			"filter.keyPrefix"},
		"StageOfTheDead": {`{"filter":{"stage":"dead"}}`, 422, bulk.Selection{}, "filter.stage"},
		"NoSuchLane":     {`{"filter":{"lane":3}}`, 422, bulk.Selection{}, "filter.lane"},
		"ToBeforeFrom": {`{"filter":{"from":"2026-03-04T06:00:00Z","to":"2026-03-04T05:00:00Z"}}`,
			422, bulk.Selection{}, "filter.to"},
		"ToInTheYear10000": {`{"filter":{"key":"/a","to":"9999-12-31T23:59:59-01:00"}}`, 422,
			bulk.Selection{}, "filter.to"},
		"LongReason": {`{"filter":{"key":"/a"},"reason":"` + strings.Repeat("ä", 501) + `"}`, 422,
			bulk.Selection{}, "reason"},
		"ForeignContinue": {`{"filter":{"key":"/a"},"continue":"bm9uZQ"}`, 422, bulk.Selection{},
			"continue"},
		"NoContinue": {`{"filter":{"key":"/a"},"continue":"%"}`, 422, bulk.Selection{},
			"continue"},
		"ContinueOfRows": {`{"filter":{"key":"/a"},"continue":"eyJsIjowLCJwIjowLCJhIjoiIWhlYWQiLCJ0IjoiMjAyNi0wMS0wMVQwMDowMDowMFoifQ"}`, 422, bulk.Selection{}, "continue"},
		"UnknownField":   {`{"filter":{"fingerprint":"0123456789ab"}}`, 400, bulk.Selection{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fakeCanceller{}
			w := f.postCancellation(c.body)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.path) {
				t.Fatalf("got %d %s, want %d about %q", w.Code, w.Body, c.status, c.path)
			}

			if w.Code >= 400 {
				if len(f.filters) != 0 {
					t.Errorf("a refused request cancelled messages by the filters %+v, want no cancellation", f.filters)
				}
				return
			}

			got := f.filters[0]
			if got.Lane != nil && c.want.Lane != nil && *got.Lane == *c.want.Lane {
				got.Lane = c.want.Lane
			}

			if got != c.want || f.dry[0] != (w.Code == 200) || len(f.called) != 1 ||
				f.called[0] != 2 {
				t.Errorf("got the filter %+v, dry run %t and the called lanes %v; want %+v and lane 2", got, f.dry[0],
					f.called,
					c.want)
			}
		})
	}
}

func TestCancellations_Continue(t *testing.T) {
	t.Parallel()
	f := &fakeCanceller{}
	var first, second struct {
		Selected, Cancelled, Asked, TooLate int
		To                                  time.Time
		Complete                            bool
		Continue                            string
	}
	if err := json.Unmarshal(f.postCancellation(`{"filter":{"keyPrefix":"/a"}}`).Body.Bytes(), &first); err != nil ||
		first.Complete || first.Selected != 3 {
		t.Fatalf("got %+v, %v, want Complete false, Selected 3 and no error", first, err)
	}

	again := f.postCancellation(`{"filter":{"keyPrefix":"/a"},"continue":"` + first.Continue + `"}`)
	if err := json.Unmarshal(again.Body.Bytes(), &second); err != nil || !second.Complete ||
		second.Continue != "" {
		t.Fatalf("got %+v, %v, want Complete true, no Continue and no error", second, err)
	}

	if f.places[1].Lane != 1 || !f.filters[1].To.Equal(now()) {
		t.Errorf("the second request continued at %+v with the filter %+v; want lane 1, and the time of the first "+
			"request as the filter's end", f.places[1], f.filters[1])
	}
}

func TestCancellations_PassesErrorsOn(t *testing.T) {
	t.Parallel()
	for err, status := range map[error]int{&weir.Error{Kind: weir.Unavailable, Message: "no"}: 503,
		errors.New("odd"): 500} {
		if w := (&fakeCanceller{err: err}).postCancellation(`{"filter":{"all":true}}`); w.Code !=
			status {
			t.Errorf("got %d %s, want %d", w.Code, w.Body, status)
		}
	}
}
