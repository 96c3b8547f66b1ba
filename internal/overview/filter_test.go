package overview_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"weir/internal/overview"
	"weir/internal/weir"
)

func TestSearch_FurtherFilters(t *testing.T) {
	simulate(t, 3, func(t *testing.T, w *world) {
		w.appendAllKinds(400, rand.New(rand.NewPCG(2, 3)))
		middle := time.Now()
		w.drainFor(time.Minute)
		all := w.readAll()
		version := ""
		for _, st := range all {
			version = max(version, st.Message.Version)
		}

		for name, c := range map[string]struct {
			filter overview.Filter
			want   func(weir.Status) bool
		}{
			"key prefix": {overview.Filter{KeyPrefix: "bad/"},
				func(st weir.Status) bool { return strings.HasPrefix(st.Message.Key, "bad/") }},
			"key prefix of dead": {overview.Filter{KeyPrefix: "bad/1", Stage: weir.Dead},
				func(st weir.Status) bool {
					return strings.HasPrefix(st.Message.Key, "bad/1") && st.Stage == weir.Dead
				}},
			"version": {overview.Filter{Version: version},
				func(st weir.Status) bool { return st.Message.Version == version }},
			"status": {overview.Filter{CMSStatus: overview.StatusRange{Low: 422, High: 422}},
				func(st weir.Status) bool { return st.CMSStatus == 422 }},
			"status of dead": {overview.Filter{CMSStatus: overview.StatusRange{Low: 400, High: 499},
				Stage: weir.Dead},
				func(st weir.Status) bool { return st.CMSStatus == 422 && st.Stage == weir.Dead }},
			"class of status": {
				overview.Filter{CMSStatus: overview.StatusRange{Low: 500, High: 599}},
				func(st weir.Status) bool { return st.CMSStatus == 500 }},
			"attempts from": {overview.Filter{MinAttempts: 1},
				func(st weir.Status) bool { return st.AttemptCount >= 1 }},
			"attempts to": {overview.Filter{MaxAttempts: 1},
				func(st weir.Status) bool { return st.AttemptCount <= 1 }},
			"finished from": {overview.Filter{FinishedFrom: middle},
				func(st weir.Status) bool {
					return st.Stage.Final() &&
						!st.FinishedAt.Before(middle)
				}},
			"finished to": {overview.Filter{FinishedTo: middle, Stage: weir.Delivered},
				func(st weir.Status) bool {
					return st.Stage == weir.Delivered &&
						st.FinishedAt.Before(middle)
				}},
		} {
			count := 0
			for _, st := range all {
				if c.want(st) {
					count++
				}
			}

			if count == 0 || count == len(all) && name != "attempts to" {
				t.Errorf("%s: got %d matching messages of %d, want at least one, but not all", name,
					count, len(all))
			}

			w.checkFound(name, w.searchAll(c.filter, 30), c.want, all)
		}
	})
}

func TestSearch_ByIdempotencyKey(t *testing.T) {
	simulate(t, 4, func(t *testing.T, w *world) {
		for i := range 200 {
			m := weir.Message{Contract: "article", Key: fmt.Sprint("ok/", i%20),
				ContentType: "application/xml", Body: []byte(fmt.Sprint("<a>", i, "</a>"))}
			if _, err := w.append.Append(t.Context(), m, fmt.Sprint("post-", i/20)); err != nil {
				t.Fatal(err)
			}
		}

		w.drainFor(time.Minute)

		if found := w.searchAll(overview.Filter{IdempotencyKey: "post-3"}, 50); len(found) != 20 {
			t.Errorf("got %d messages with the Idempotency-Key, want one of each of 20 keys",
				len(found))
		}

		var found overview.SearchResult
		f := overview.Filter{Key: "ok/7", IdempotencyKey: "post-3"}
		queries := w.countRequests(func() {
			var err error
			if found, err = w.all.Search(t.Context(), f, 50, ""); err != nil {
				t.Error(err)
			}
		})

		if len(found.Messages) != 1 || found.Messages[0].Message.Key != "ok/7" || !found.Complete ||
			found.Messages[0].Stage != weir.Delivered {
			t.Errorf("got %+v, want the delivered message of ok/7 alone", found)
		}

		if queries > 4 {
			t.Errorf("the search made %d queries, want at most 4", queries)
		}

		for _, f := range []overview.Filter{{Key: "ok/7", IdempotencyKey: "post"},
			{IdempotencyKey: "post"}, {Key: "ok/7", IdempotencyKey: "post-3", Stage: weir.Dead}} {
			if got := w.searchAll(f, 50); len(got) != 0 {
				t.Errorf("%+v: got %d messages, want none", f, len(got))
			}
		}
	})
}

func TestSearch_ByShownValue(t *testing.T) {
	simulate(t, 2, func(t *testing.T, w *world) {
		for i := range 40 {
			w.appendMessage(fmt.Sprint("ok/", i), func(m *weir.Message) {
				m.Shown = map[string]string{"title": fmt.Sprint("Harbour ", i%4), "desk": "Sport"}
			})
		}

		w.appendMessage("ok/none")

		for f, want := range map[overview.ShownFilter]int{{Name: "title", Text: "harbour 3"}: 10,
			{Name: "desk", Text: "harbour"}: 0, {Name: "desk"}: 40, {Name: "author"}: 0} {
			found := w.searchAll(overview.Filter{Shown: f}, 7)
			if len(found) != want {
				t.Errorf("%+v: got %d messages, want %d", f, len(found), want)
			}

			if want == 10 && found[0].Message.Shown["desk"] != "Sport" {
				t.Errorf("got the shown values %v, want desk Sport", found[0].Message.Shown)
			}
		}

		if found := w.searchAll(overview.Filter{Text: "HARBOUR 3"}, 50); len(found) != 10 {
			t.Errorf("got %d messages with the text, want 10", len(found))
		}
	})
}

func TestOrder(t *testing.T) {
	t.Parallel()
	at := func(minutes int) time.Time {
		return time.Date(2026, 1, 8, 12, minutes, 0, 0, time.UTC)
	}
	list := []weir.Status{
		{Message: weir.Message{Key: "b", Version: "10", AcceptedAt: at(3)}, AttemptCount: 2,
			CMSStatus: 500},
		{Message: weir.Message{Key: "c", Version: "9", AcceptedAt: at(2), DueAt: at(9)},
			FinishedAt: at(5)},
		{Message: weir.Message{Key: "a", AcceptedAt: at(1)}, FinishedAt: at(4), AttemptCount: 1,
			CMSStatus: 201},
		{Message: weir.Message{Key: "d", Version: "2026-01-01T00:00:00Z", DueAt: at(8)},
			AttemptCount: 2},
	}

	for name, want := range map[string]string{"": "bcad", "accepted": "dacb", "-accepted": "bcad",
		"finished":  "acbd",
		"-finished": "cabd", "due": "dcba", "-due": "cdba", "key": "abcd", "-key": "dcba",
		"version":  "cbda",
		"-version": "dbca", "attempts": "cabd", "-attempts": "bdac", "status": "abcd",
		"-status": "bacd"} {
		order, err := overview.ParseOrder(name)
		if err != nil {
			t.Errorf("ParseOrder(%q) = %v, want no error", name, err)
		}

		sorted := append([]weir.Status(nil), list...)
		order.Sort(sorted)
		got := ""
		for _, st := range sorted {
			got += st.Message.Key
		}

		if got != want {
			t.Errorf("by %q: got %s, want %s", name, got, want)
		}
	}

	for _, name := range []string{"-", "size", "--key"} {
		if _, err := overview.ParseOrder(name); err == nil {
			t.Errorf("ParseOrder(%q) = nil, want an error", name)
		}
	}
}

// secretHider is a Redactor that hides the text "secret". It returns an error for messages of the
// contract "broken".
type secretHider struct{}

func (secretHider) HideValues(_ context.Context, m *weir.Message) (bool, error) {
	if m.Contract == "broken" {
		m.Body = nil
		return false, &weir.Error{Kind: weir.Conflict, Op: "redact", Message: "not shown"}
	}

	hidden := bytes.ReplaceAll(m.Body, []byte("secret"), []byte("[redacted]"))
	isChanged := len(hidden) != len(m.Body)
	m.Body = hidden

	return isChanged, nil
}

// A search must not find a message by a redacted value, or by a body that cannot be redacted.
func TestSearch_FindsNoRedactedValue(t *testing.T) {
	simulate(t, 2, func(t *testing.T, w *world) {
		w.all.Redactor = secretHider{}
		for i := range 10 {
			w.appendMessage(fmt.Sprint("ok/", i),
				func(m *weir.Message) { m.Body = []byte("<a>open, secret</a>") })
			w.appendMessage(fmt.Sprint("broken/", i), func(m *weir.Message) {
				m.Contract, m.Body = "broken", []byte("<a>open, secret")
			})
		}

		for text, want := range map[string]int{"SECRET": 0, "n, se": 0, "open": 10, "<a>": 10} {
			found := w.searchAll(overview.Filter{Text: text}, 50)
			if len(found) != want {
				t.Errorf("%s: got %d messages, want %d", text, len(found), want)
			}

			for _, st := range found {
				if st.Message.Body != nil {
					t.Errorf("%s: got a message with the body %q, want none", text, st.Message.Body)
				}
			}
		}
	})
}
