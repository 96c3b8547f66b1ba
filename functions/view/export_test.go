package view_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/audit"
	"weir/internal/overview"
	"weir/internal/replay"
	"weir/internal/weir"
	"weir/internal/wire"
)

func TestExport_CSV(t *testing.T) {
	t.Parallel()
	s, ask := newReads(t)
	for _, w := range []string{"/api/messages?format=csv&limit=3&key=/a",
		"/api/scheduled?format=csv&limit=3"} {
		answer := ask(w)
		expectAnswer(t, answer, 200)

		if got := answer.Header().Get("Content-Disposition"); !strings.HasPrefix(got, `attachment; filename="weir-`) ||
			!strings.HasSuffix(got, `.csv"`) {
			t.Errorf("Content-Disposition is %q, want it to begin with attachment; filename=\"weir- and it to end "+
				"with .csv\"", got)
		}

		r := csv.NewReader(answer.Body)
		r.FieldsPerRecord = -1
		records, err := r.ReadAll()
		if err != nil || len(records) != 5 {
			t.Fatalf("%s: got %d records, %v; want 5: a heading, three messages, and a remark", w,
				len(records), err)
		}

		cells := map[string]string{}
		for i, name := range records[0] {
			cells[name] = records[1][i]
		}

		want := map[string]string{"id": message.Message.ID.String(), "stage": "dead",
			"key": `"><img src=x>`, "lane": "2",
			"attempts": "30", "acceptedAt": "2026-01-08T12:00:00Z", "deliverAt": "",
			"cmsStatus":   "422",
			"shown.title": "'=1+1", "shown.desk": ""}
		for name, text := range want {
			if cells[name] != text {
				t.Errorf("%s: the column %s has %q, want %q", w, name, cells[name], text)
			}
		}

		if last := records[4]; len(last) != 1 || !strings.Contains(last[0], "not complete") ||
			!strings.Contains(last[0], "3 lines") {
			t.Errorf("%s: got %q at the end, want a remark that lines are missing", w, last)
		}
	}

	if s.filter.Key != "" || s.token != "abc" {
		t.Errorf("the last page was read with %+v and %q, want no Key and token abc",
			s.filter, s.token)
	}
}

func TestExport_JSON(t *testing.T) {
	t.Parallel()
	s, ask := newReads(t)
	var list wire.MessageList
	if err := json.Unmarshal(ask("/api/messages?format=json&limit=2&stage=dead").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}

	if len(list.Messages) != 2 || list.Messages[1].Shown["title"] != "=1+1" || list.Looked != 14 ||
		list.NotSearched != 4 || list.Complete || list.Continue != "abc" ||
		s.filter.Stage != weir.Dead {
		t.Errorf("got %+v, want 2 Messages, title =1+1, Looked 14, NotSearched 4, Complete false, Continue abc and "+
			"Stage dead", list)
	}

	s.isLast = true
	list = wire.MessageList{}
	if err := json.Unmarshal(ask("/api/messages?format=json").Body.Bytes(), &list); err != nil ||
		!list.Complete ||
		len(list.Messages) != 1 {
		t.Errorf("got %+v, %v; want one message and Complete true", list, err)
	}

	if w := ask("/api/messages", "Accept", "text/html, text/csv;q=0.5"); strings.Contains(w.Body.String(), "(not") ||
		!strings.HasPrefix(w.Body.String(), "id,stage,") {
		t.Errorf("got %s, want a whole CSV", w.Body)
	}

	var errors wire.ErrorList
	if err := json.Unmarshal(ask("/api/errors?format=json").Body.Bytes(), &errors); err != nil ||
		len(errors.Errors) != 1 || errors.Looked != 3 {
		t.Errorf("got %+v, %v; want one cause, Looked 3 and no error", errors, err)
	}

	expectAnswer(t, ask("/api/errors?format=csv"), 200,
		"0123456789ab,article,422,asset <n>,3,2,2026-01-08T12:00:00Z,")

	for _, query := range []string{"messages?format=xml", "messages?format=csv&sort=key",
		"messages?format=csv&limit=10001",
		"errors?format=pdf", "scheduled?lane=4",
		"scheduled?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z",
		"scheduled?stage=dead"} {
		expectAnswer(t, ask("/api/"+query), 400)
	}
}

// In a CSV, a cell that begins with "=" gets an apostrophe in front, so that a spreadsheet does not
// run a formula.
func TestExport_OfOtherLists(t *testing.T) {
	t.Parallel()
	s, ask := newReads(t)
	for address, wants := range map[string][]string{
		"/api/audit?format=csv&action=pause&limit=3": {"at,action,subject,detail,function,",
			"2026-01-08T12:00:00Z,pause,'=1+1,\"{\"\"all\"\":true}\",write,200,jo,3fa9c2d1,203.0.113.4,i,,\r\n",
			"(not complete: the export ended after 3 lines"},
		"/api/audit?format=json&limit=2": {
			`{"entries":[{"at":"2026-01-08T12:00:00Z","action":"pause",`, `],"continue":"page"}`},
		"/api/replays?format=csv": {"id,state,reason,filter.key,",
			"one,done,'=1+1,/a,0,article,0123456789ab,,,60,true,9,1" +
				",2,3,4,5,6,7,2026-01-08T12:00:00Z,,,stopped by jo\r\n"},
		"/api/replays?format=json": {`{"replays":[{"id":"one",`, "}]}\n"},
		"/api/lanes?format=csv": {"lane,accepted,delivered,dead,",
			"0,10,4,1,0,0,0,0,5,1,3,1,false,2026-01-08T11:58:30Z,2,,,true,host-1,7,cms,2026-01-08T12:01:00Z,503,",
			"\r\n1,0,0,0,0,0,0,0,0,0,0,0,true,,,,0,false,,0,,,,,,\r\n"},
		"/api/lanes?format=json": {`{"lanes":[{"lane":0,`, `"totals":{`, `"calendar":{`},
	} {
		expectAnswer(t, ask(address), 200, wants...)
	}

	expectAnswer(t, ask("/api/audit?format=csv&action=pause&subject=one&limit=1"), 200)
	if q := s.query; q.Action != "pause" || q.Subject != "one" || q.Limit != 1 {
		t.Errorf("the audit log got the query %+v, want action pause, subject one and limit 1", q)
	}

	for _, address := range []string{"/api/audit?format=pdf", "/api/audit?format=csv&limit=10001",
		"/api/replays?format=pdf", "/api/lanes?format=pdf"} {
		expectAnswer(t, ask(address), 400)
	}

	s.fails = &weir.Error{Kind: weir.Unavailable, Message: "away"}
	for _, address := range []string{"/api/audit", "/api/replays", "/api/lanes"} {
		expectAnswer(t, ask(address+"?format=csv"), 503)
	}
}

// Read implements view.AuditReader. Each page has one entry, and names a next page.
func (s *source) Read(_ context.Context, q audit.Query) (audit.Page, error) {
	s.query = q
	return audit.Page{Entries: []audit.Entry{{At: noon, Action: "pause", Subject: "=1+1", Detail: `{"all":true}`,
		Function: "write", Status: 200, Principal: "jo", KeyID: "3fa9c2d1", From: "203.0.113.4",
		Invocation: "i"}},
		Continue: "page"}, s.fails
}

// List implements view.Jobs.
func (s *source) List(context.Context) ([]replay.Job, error) {
	number := 0
	return []replay.Job{{ID: "one", State: replay.Done, Reason: "=1+1", RatePerMinute: 60,
		Force: true, StartedAt: noon,
		Filter: replay.Filter{Key: "/a", Lane: &number, Contract: "article",
			Fingerprint: "0123456789ab"},
		Matched: 9, Replayed: 1, Refused: 2, Skipped: 3, Delivered: 4, DeadAgain: 5, Otherwise: 6,
		Waiting:    7,
		StopReason: "stopped by jo"}}, s.fails
}

// Get implements view.Jobs.
func (s *source) Get(context.Context, string) (replay.Job, error) {
	return replay.Job{}, &weir.Error{Kind: weir.NotFound, Message: "none"}
}

func TestExport_FailsVisibly(t *testing.T) {
	t.Parallel()
	s, ask := newReads(t)
	s.fails = &weir.Error{Kind: weir.Unavailable, Message: "away"}
	expectAnswer(t, ask("/api/messages?format=csv"), 503)
	s.fails, s.failsBehind = nil, &weir.Error{Kind: weir.Unavailable, Message: "away"}
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("got the panic %v, want http.ErrAbortHandler when the second page cannot be read", p)
		}
	}()

	ask("/api/messages?format=csv")
}

func TestExport_EndsInTime(t *testing.T) {
	t.Parallel()
	s, ask := newReads(t)
	s.passTime = 6 * time.Second
	var list wire.MessageList
	if err := json.Unmarshal(ask("/api/messages?format=json").Body.Bytes(), &list); err != nil ||
		list.Complete ||
		len(list.Messages) < 2 || len(list.Messages) > 4 {
		t.Errorf("got %d messages, complete %v, %v; want the 2 to 4 messages that can be read in 15 s, and no error",
			len(list.Messages),
			list.Complete, err)
	}
}

func TestScheduled(t *testing.T) {
	t.Parallel()
	s, ask := newReads(t)
	expectAnswer(t, ask("/api/scheduled?lane=3&from=2026-01-08T13:00:00%2B01:00&limit=7&continue=xyz"), 200,
		`"continue":"abc"`,
		`"messages":[{"id"`)

	if s.due.Lane == nil || *s.due.Lane != 3 || !s.due.From.Equal(noon) || s.limit != 7 ||
		s.token != "xyz" {
		t.Errorf("asked for %+v, limit %d, token %q, want lane 3 from %s, 7, xyz", s.due, s.limit,
			s.token, noon)
	}

	s.fails = &weir.Error{Kind: weir.Unavailable, Message: "away"}
	expectAnswer(t, ask("/api/scheduled"), 503)
}

// Scheduled implements view.ScheduledReader.
func (s *source) Scheduled(ctx context.Context, f overview.DueFilter, limit int,
	token string) (overview.SearchResult, error) {
	s.due = f
	return s.Search(ctx, overview.Filter{}, limit, token)
}
