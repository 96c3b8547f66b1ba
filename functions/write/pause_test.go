package write_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/functions/write"
	"weir/internal/lane"
	"weir/internal/weir"
)

// pauses implements write.Pauser and wake.Ringer in memory.
type pauses struct {
	mu     sync.Mutex
	all    map[weir.Pause]bool // the pauses in force
	fail   map[int]error       // the error of Pause and Resume, by lane
	called []int               // the arguments of Call
}

func (f *pauses) Pause(_ context.Context, p weir.Pause) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail[p.Lane]; err != nil {
		return err
	}

	f.all[p] = true
	return nil
}

func (f *pauses) Resume(_ context.Context, lane int, key string) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	for p := range f.all {
		if p.Lane == lane && p.Key == key {
			delete(f.all, p)
		}
	}

	return f.fail[lane]
}

func (f *pauses) ReadPauses(context.Context) ([]weir.Pause, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []weir.Pause
	for p := range f.all {
		out = append(out, p)
	}

	slices.SortFunc(out, func(a, b weir.Pause) int { return a.Lane - b.Lane })

	return out, nil
}

func (f *pauses) Ring(lane int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.called = append(f.called, lane)
}

func now() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) }

var quiet = slog.New(slog.DiscardHandler)

func nameAuthor(*http.Request) string { return "ada" }

// postPause posts to /api/pause or /api/resume. It returns the answer's status and body, and a text
// "scope|key|reason|since|until" for each pause in the body.
func (f *pauses) postPause(t *testing.T, address, body string) (status int, text string,
	paused []string) {
	t.Helper()
	var h http.Handler = &write.Pause{Pauser: f, NameAuthor: nameAuthor, Lanes: 3,
		LaneOf: laneOfThree, Now: now, Logger: quiet}
	if address == "resume" {
		h = &write.Resume{Pauser: f, Waker: f, Lanes: 3, LaneOf: laneOfThree, Logger: quiet}
	}

	r, w := httptest.NewRequest(http.MethodPost, "/api/"+address, strings.NewReader(body)),
		httptest.NewRecorder()
	r.Header.Set("Content-Type", "application/json")
	h.ServeHTTP(w, r)
	var got struct {
		Pauses []struct{ Scope, Key, Reason, Since, Until string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatalf("the answer %s is not JSON, want JSON: %v", w.Body, err)
	}

	for _, p := range got.Pauses {
		paused = append(paused,
			strings.Join([]string{p.Scope, p.Key, p.Reason, p.Since, p.Until}, "|"))
	}

	return w.Code, w.Body.String(), paused
}

func TestPause(t *testing.T) {
	t.Parallel()
	const since = "2026-03-04T05:06:07Z"
	for name, c := range map[string]struct {
		body   string
		status int
		paused []string
	}{
		"All": {`{"all":true,"reason":"fire"}`, 200,
			[]string{"lane||fire|" + since + "|", "lane||fire|" + since + "|",
				"lane||fire|" + since + "|"}},
		"Lane0For": {`{"lane":0,"reason":" fire ","for":"90m"}`, 200,
			[]string{"lane||fire|" + since + "|2026-03-04T06:36:07Z"}},
		"Lane0ForISO": {`{"lane":0,"reason":"fire","for":"PT90M"}`, 200,
			[]string{"lane||fire|" + since + "|2026-03-04T06:36:07Z"}},
		"KeyUntil": {`{"key":"a/b","reason":"odd","until":"2026-03-05T00:00:00+01:00"}`, 200,
			[]string{"key|a/b|odd|" + since + "|2026-03-05T00:00:00+01:00"}},
		"KeyUntilLowerCase": {`{"key":"a/b","reason":"odd","until":"2026-03-05t00:00:00+01:00"}`,
			200, []string{"key|a/b|odd|" + since + "|2026-03-05T00:00:00+01:00"}},
		"NoSuchLane": {`{"lane":3,"reason":"r"}`, 404, nil},
		"NoReason":   {`{"lane":1,"reason":" "}`, 422, nil},
		"LongReason": {`{"lane":1,"reason":"` + strings.Repeat("ä", 501) + `"}`, 422, nil},
		"LongestReason": {`{"lane":1,"reason":"` + strings.Repeat("ä", 500) + `"}`, 200,
			[]string{"lane||" + strings.Repeat("ä", 500) + "|" + since + "|"}},
		"Nothing":      {`{"reason":"r"}`, 422, nil},
		"Two":          {`{"lane":1,"key":"a","reason":"r"}`, 422, nil},
		"EmptyKey":     {`{"key":"","reason":"r"}`, 422, nil},
		"UntilNow":     {`{"lane":1,"reason":"r","until":"2026-03-04T05:06:07Z"}`, 422, nil},
		"NoTime":       {`{"lane":1,"reason":"r","for":"soon"}`, 422, nil},
		"NegativeTime": {`{"lane":1,"reason":"r","for":"-1m"}`, 422, nil},
		"NoNumber":     {`{"lane":"one","reason":"r"}`, 400, nil},
		"BothTimes": {`{"lane":1,"reason":"r","for":"1m","until":"2027-03-04T05:06:07Z"}`, 422,
			nil},
		"UnknownField": {`{"lane":1,"reason":"r","unitl":"2027-03-04T05:06:07Z"}`, 400, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &pauses{all: map[weir.Pause]bool{}}
			status, text, paused := f.postPause(t, "pause", c.body)
			if status != c.status || !slices.Equal(paused, c.paused) ||
				strings.Contains(text, "target") {
				t.Errorf("got %d %s, want %v, paused %v and no \"target\"", status, text,
					c.status, c.paused)
			}

			if c.status != 200 && len(f.all) != 0 {
				t.Errorf("got %d and the pauses %v, want no pause", status, f.all)
			}
		})
	}
}

func TestPause_SomeLanesFail(t *testing.T) {
	t.Parallel()
	f := &pauses{all: map[weir.Pause]bool{},
		fail: map[int]error{1: &weir.Error{Kind: weir.Unavailable, Message: "no answer"}}}
	if status, text, _ := f.postPause(t, "pause", `{"all":true,"reason":"r"}`); status != 503 ||
		!strings.Contains(text, "lanes [1]") || len(f.all) != 2 {
		t.Errorf("got %d %s and %d pauses, want 503, \"lanes [1]\" and 2 pauses", status, text,
			len(f.all))
	}

	sealed := &weir.Error{Kind: weir.Conflict, Message: "the number of lanes is being changed"}
	f = &pauses{all: map[weir.Pause]bool{}, fail: map[int]error{0: sealed, 1: sealed, 2: sealed}}
	if status, text, _ := f.postPause(t, "pause", `{"all":true,"reason":"r"}`); status != 409 {
		t.Errorf("got %d %s, want 409", status, text)
	}
}

func TestPause_NamesTheAuthor(t *testing.T) {
	t.Parallel()
	f := &pauses{all: map[weir.Pause]bool{}}
	if _, text, _ := f.postPause(t, "pause", `{"lane":1,"reason":"r"}`); !strings.Contains(text,
		`"by":"ada"`) {
		t.Errorf("got %s, want a pause by ada", text)
	}
}

func TestResume(t *testing.T) {
	t.Parallel()
	laneOfKey := lane.Of("k", 3)
	for name, c := range map[string]struct {
		body         string
		left, called int // the number of remaining pauses, and of lanes passed to Call
	}{
		"All":  {`{"all":true}`, 1, 3}, // the pause of a key remains
		"Lane": {`{"lane":2}`, 3, 1},
		"Key":  {`{"key":"k"}`, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &pauses{all: map[weir.Pause]bool{{Reason: "r"}: true, {Lane: 1, Reason: "r"}: true,
				{Lane: 2, Reason: "r"}: true, {Lane: laneOfKey, Key: "k", Reason: "r"}: true}}
			status, text, left := f.postPause(t, "resume", c.body)
			if status != 200 || len(left) != c.left || len(f.called) != c.called {
				t.Errorf("got %d %s and the called lanes %v; want 200, %d pauses left and %d called lanes", status,
					text, f.called, c.left, c.called)
			}
		})
	}

	f := &pauses{}
	if status, text, _ := f.postPause(t, "resume", `{"all":true,"lane":1}`); status != 422 {
		t.Errorf("got %d %s, want 422", status, text)
	}
}

// laneOfThree returns the lane of a key, of three lanes.
func laneOfThree(key string) int { return lane.Of(key, 3) }
