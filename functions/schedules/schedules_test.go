package schedules_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/functions/schedules"
	"weir/internal/contract"
	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/recur"
	"weir/internal/weir"
)

var noon = time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)

// fake stores one schedule, "nightly", and one accepted message, whose id is in the variable "id".
type fake struct {
	exists bool             // true = Put replaces the schedule; false = Put creates it
	put    recur.Definition // the schedule's definition, which Put and Try replace
	cond   recur.Condition  // the condition of the last Put or Delete
	err    error            // the error of Put, of List, and of a Get that finds the schedule
}

func (f *fake) newSchedule() recur.Schedule {
	return recur.Schedule{Name: "nightly", Version: "v1", CreatedAt: noon, ChangedAt: noon,
		Definition: f.put, State: recur.State{NextAt: noon.Add(time.Hour), NextRun: 1, Missed: 4}}
}

func (f *fake) Get(_ context.Context, name string) (recur.Schedule, error) {
	if name != "nightly" {
		return recur.Schedule{},
			&weir.Error{Kind: weir.NotFound, Op: "schedule", Message: "there is none"}
	}
	return f.newSchedule(), f.err
}

func (f *fake) List(context.Context) ([]recur.Schedule, error) {
	return []recur.Schedule{f.newSchedule()}, f.err
}

func (f *fake) Put(_ context.Context, _ string, d recur.Definition,
	cond recur.Condition) (recur.Schedule, bool, error) {
	f.put, f.cond = d, cond
	return f.newSchedule(), !f.exists, f.err
}

func (f *fake) Delete(_ context.Context, name string, cond recur.Condition) error {
	f.cond = cond
	_, err := f.Get(context.Background(), name)
	return err
}

func (f *fake) Run(_ context.Context, name string) (lane.Receipt, int64, error) {
	_, err := f.Get(context.Background(), name)
	return lane.Receipt{Message: weir.Message{ID: id, Key: "/a"}, Stage: weir.Queued}, 7, err
}

func (f *fake) SetPaused(_ context.Context, name string, isPaused bool) (recur.Schedule, error) {
	f.put.Paused = isPaused
	return f.Get(context.Background(), name)
}

func (f *fake) Preview(_ context.Context, name string, n int) (recur.Preview, error) {
	if _, err := f.Get(context.Background(), name); err != nil {
		return recur.Preview{}, err
	}

	p, err := recur.NewPlan(recur.Definition{Cron: "30 2 * * *", TimeZone: "Europe/Berlin"}, noon)
	if err != nil {
		return recur.Preview{}, err
	}

	return p.Preview(noon, n), nil
}

func (f *fake) Try(_ context.Context, d recur.Definition, n int) (recur.Preview, error) {
	f.put = d
	return f.Preview(context.Background(), "nightly", n)
}

var id = weir.ID{Epoch: 1, Lane: 2, Seq: 3, Nonce: "00112233445566778899"}

func (f *fake) LoadMessage(_ context.Context, asked weir.ID) (weir.Message, error) {
	if asked != id {
		return weir.Message{},
			&weir.Error{Kind: weir.NotFound, Op: "load", Message: "there is none"}
	}
	return weir.Message{ID: id, ContentType: "text/xml", Body: []byte("<stored/>")}, nil
}

func serveRequest(f *fake, method, path, body string,
	headers ...string) *httptest.ResponseRecorder {
	fn := &schedules.Function{Schedules: f, Stored: f, Contracts: &contract.Set{},
		Intake: httpio.NewIntake(1, 7000), Turns: httpio.NewTurns(1 << 20), MaxBody: 1000,
		Now:    func() time.Time { return noon },
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}

	mux := http.NewServeMux()
	for path, h := range fn.Routes() {
		mux.Handle("/api/schedules"+path, h)
	}

	r := httptest.NewRequest(method, "http://weir.example/api/schedules"+path,
		strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}

	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)

	return w
}

const nightly = `{"cron":"30 2 * * *","timeZone":"Europe/Berlin","message":"<a/>","overlap":"skip","missed":"none","paused":true,"start":"2026-01-01T00:00:00+01:00"}`

func TestFunction_Put(t *testing.T) {
	t.Parallel()
	t.Run("Created", func(t *testing.T) {
		t.Parallel()
		f := &fake{}
		w := serveRequest(f, "PUT", "/nightly", nightly, "If-None-Match", "*",
			"X-Forwarded-Proto", "https")
		if w.Code != 201 || w.Header().Get("ETag") != `"v1"` ||
			w.Header().Get("Location") != "https://weir.example/api/schedules/nightly" ||
			!f.cond.NotExists {
			t.Errorf("got %d %v %s, want status 201, ETag \"v1\", Location https://weir.example/api/schedules/nightly "+
				"and NotExists true", w.Code, w.Header(), w.Body)
		}

		if d := f.put; d.Cron != "30 2 * * *" || d.TimeZone != "Europe/Berlin" ||
			string(d.Message) != "<a/>" ||
			d.Overlap != recur.Skip || d.Missed != recur.None || !d.Paused || d.Start.IsZero() ||
			!d.End.IsZero() {
			t.Errorf("got the definition %+v, want Cron \"30 2 * * *\", TimeZone Europe/Berlin, Message <a/>, Overlap "+
				"%v, Missed %v, Paused true, a Start and no End", d, recur.Skip, recur.None)
		}
	})

	t.Run("TheAnswerOfGetIsAValidPut", func(t *testing.T) {
		t.Parallel()
		f := &fake{exists: true}
		first := serveRequest(f, "PUT", "/nightly", nightly)
		got := serveRequest(f, "GET", "/nightly", "")
		again := serveRequest(f, "PUT", "/nightly", got.Body.String(), "If-Match",
			got.Header().Get("ETag"))
		if first.Code != 200 || got.Code != 200 || again.Code != 200 ||
			again.Body.String() != first.Body.String() ||
			len(f.cond.Versions) != 1 || f.cond.Versions[0] != "v1" {
			t.Errorf("PUT = %d %s\nGET = %d\nPUT again = %d %s with the condition %+v\nwant 200 three times, the same "+
				"answer to both PUTs, and the condition v1",
				first.Code, first.Body, got.Code, again.Code, again.Body, f.cond)
		}
	})

	t.Run("AStoredMessage", func(t *testing.T) {
		t.Parallel()
		f := &fake{}
		w := serveRequest(f, "PUT", "/nightly", `{"cron":"@daily","messageId":"`+id.String()+`"}`)
		if w.Code != 201 || string(f.put.Message) != "<stored/>" ||
			f.put.ContentType != "text/xml" ||
			!strings.Contains(w.Body.String(), `"copiedFrom":"`+id.String()) {
			t.Errorf("got %d %s %+v, want status 201, Message <stored/>, ContentType text/xml and %q", w.Code,
				w.Body, f.put, `"copiedFrom":"`+id.String())
		}
	})
}

func TestFunction_Refuses(t *testing.T) {
	t.Parallel()
	large := `{"cron":"@daily","message":"` + strings.Repeat("x", 1001) + `"}`
	for name, c := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
	}{
		"AnotherEncoding": {"PUT", "/nightly",
			`{"cron":"@daily","message":"<?xml version='1.0' encoding='iso-8859-1'?><a>ä</a>"}`,
			nil, 400},
		"AnotherCharset": {"PUT", "/nightly",
			`{"cron":"@daily","contentType":"text/xml; charset=windows-1252","message":"<a>ä</a>"}`,
			nil, 400},
		"AnUnknownCharset": {"POST", "/nightly/preview",
			`{"cron":"@daily","contentType":"text/xml; charset=utf-7","message":"<a/>"}`, nil, 415},
		"Gzip": {"PUT", "/nightly", `{"cron":"@daily","message":"<a/>"}`,
			[]string{"Content-Encoding", "gzip"}, 415},
		"ABadName":           {"GET", "/a%2Fb", "", nil, 400},
		"ALongName":          {"GET", "/" + strings.Repeat("x", 65), "", nil, 400},
		"AnUnknownName":      {"GET", "/other", "", nil, 404},
		"RunOfAnUnknownName": {"POST", "/other/run", "", nil, 404},
		"PreviewOfAnUnknown": {"GET", "/other/preview", "", nil, 404},
		"DeleteOfAnUnknown":  {"DELETE", "/other", "", nil, 404},
		"AWrongMethod":       {"POST", "/nightly", "{}", nil, 405},
		"PauseOfAnUnknown":   {"POST", "/other/pause", "", nil, 404},
		"ResumeByGet":        {"GET", "/nightly/resume", "", nil, 405},
		"RunByGet":           {"GET", "/nightly/run", "", nil, 405},
		"NotJSON":            {"PUT", "/nightly", "<a/>", nil, 400},
		"NoBody": {"PUT", "/nightly", "",
			[]string{"Content-Type", "application/json"}, 400},
		"AnotherMediaType": {"PUT", "/nightly", nightly,
			[]string{"Content-Type", "application/xml"}, 415},
		"AnUnknownField": {"PUT", "/nightly",
			`{"cron":"@daily","message":"<a/>","cronn":1}`, nil, 400},
		"TextAfterTheJSON": {"PUT", "/nightly", nightly + "x", nil, 400},
		"NotATime": {"PUT", "/nightly",
			`{"cron":"@daily","message":"<a/>","start":"tomorrow"}`, nil, 400},
		"ANumberForAText": {"PUT", "/nightly", `{"cron":5,"message":"<a/>"}`, nil, 400},
		"AnotherName": {"PUT", "/nightly",
			`{"name":"x","cron":"@daily","message":"<a/>"}`, nil, 400},
		"NoMessage": {"PUT", "/nightly", `{"cron":"@daily"}`, nil, 422},
		"TwoMessages": {"PUT", "/nightly",
			`{"cron":"@daily","message":"<a/>","messageId":"` + id.String() + `"}`, nil, 422},
		"NotAnID": {"PUT", "/nightly",
			`{"cron":"@daily","messageId":"x"}`, nil, 422},
		"AnUnknownMessage": {"PUT", "/nightly",
			`{"cron":"@daily","messageId":"AQABL714SFvJDd7dAA"}`, nil, 422},
		"AMessageTooLarge":       {"PUT", "/nightly", large, nil, 413},
		"AnIfMatchWithoutQuotes": {"PUT", "/nightly", nightly, []string{"If-Match", "v1"}, 400},
		"AnIfNoneMatchOfATag": {"PUT", "/nightly", nightly,
			[]string{"If-None-Match", `"v1"`}, 400},
		"ACountOfZero":   {"GET", "/nightly/preview?count=0", "", nil, 400},
		"ACountTooLarge": {"GET", "/nightly/preview?count=201", "", nil, 400},
		"ACountOfWords":  {"GET", "/nightly/preview?count=all", "", nil, 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := serveRequest(&fake{}, c.method, c.path, c.body, c.headers...)
			if w.Code != c.status || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("got %d %s %s, want %d application/problem+json", w.Code,
					w.Header().Get("Content-Type"), w.Body, c.status)
			}

			if strings.Contains(w.Body.String(), "Go struct") ||
				strings.Contains(w.Body.String(), "2006") {
				t.Errorf("got %s, want no names of Go types or layouts in it", w.Body)
			}
		})
	}

	t.Run("AFailedPrecondition", func(t *testing.T) {
		t.Parallel()
		f := &fake{err: &weir.Error{Kind: weir.Stale, Op: "schedule", Message: "changed"}}
		for _, method := range []string{"PUT", "DELETE"} {
			if w := serveRequest(f, method, "/nightly", nightly, "If-Match", `"v0", W/"v9"`); w.Code != 412 ||
				len(f.cond.Versions) != 2 || f.cond.Versions[1] != "v9" {
				t.Errorf("%s: got %d and the condition %+v; want 412, and two Versions of which the second is v9",
					method, w.Code, f.cond)
			}
		}
	})
}

func TestFunction_Answers(t *testing.T) {
	t.Parallel()
	f := &fake{put: recur.Definition{Cron: "@daily", Message: []byte{0xff, 0xfe}, CopiedFrom: "m1"}}
	for path, want := range map[string][]string{
		"": {`"schedules":[{"name":"nightly"`, `"missed":4`,
			`"nextAt":"2026-03-28T13:00:00Z"`},
		"/nightly": {`"messageId":"m1"`, `"name":"nightly"`},
		"/nightly/preview?count=1": {
			`{"dueAt":"2026-03-30T00:30:00Z","localTime":"2026-03-30T02:30:00","offset":"+02:00"}`,
			`"skipped":[{"localTime":"2026-03-29T02:30:00"`, `"doubled":[]`},
	} {
		w := serveRequest(f, "GET", path, "")
		for _, part := range want {
			if w.Code != 200 || !strings.Contains(w.Body.String(), part) {
				t.Errorf("GET %s = %d %s, want 200 with %s", path, w.Code, w.Body, part)
			}
		}
	}

	var p struct{ Runs []any }
	if err := json.Unmarshal(serveRequest(f, "GET", "/nightly/preview", "").Body.Bytes(), &p); err != nil ||
		len(p.Runs) != 20 {
		t.Errorf("got %d runs, %v, want 20", len(p.Runs), err)
	}

	tried := &fake{}
	if w := serveRequest(tried, "POST", "/new/preview?count=3", nightly); w.Code != 200 ||
		strings.Count(w.Body.String(), "dueAt") != 3 || tried.put.Cron != "30 2 * * *" {
		t.Errorf(`got %d %s %+v, want status 200, 3 times "dueAt" and Cron "30 2 * * *"`,
			w.Code, w.Body, tried.put)
	}

	if w := serveRequest(f, "DELETE", "/nightly", ""); w.Code != 200 ||
		w.Body.String() != `{"name":"nightly","deleted":true}`+"\n" {
		t.Errorf("got %d %s, want status 200 and body %v", w.Code, w.Body,
			`{"name":"nightly","deleted":true}`+"\n")
	}

	for path, want := range map[string]string{"/nightly/pause": `"paused":true`,
		"/nightly/resume": `"paused":false`} {
		if w := serveRequest(f, "POST", path, ""); w.Code != 200 ||
			!strings.Contains(w.Body.String(), want) ||
			w.Header().Get("ETag") == "" {
			t.Errorf("%s: got %d %v %s, want 200 with an ETag and %s", path, w.Code, w.Header(),
				w.Body, want)
		}
	}

	w := serveRequest(f, "POST", "/nightly/run", "")
	if w.Code != 202 || w.Header().Get("Location") != "http://weir.example/api/messages/"+
		id.String() ||
		!strings.Contains(w.Body.String(), `"run":7`) {
		t.Errorf("got %d %v %s, want status 202, Location %v and \"run\":7", w.Code,
			w.Header(), w.Body, "http://weir.example/api/messages/"+id.String())
	}
}

func TestFunction_ExportsTheList(t *testing.T) {
	t.Parallel()
	f := &fake{put: recur.Definition{Cron: "@daily", TimeZone: "Europe/Berlin", Overlap: recur.Skip,
		Missed: recur.None}}

	for query, want := range map[string]string{
		"?format=csv": "name,cron,timeZone,paused,start,end,overlap,missed,nextAt,lastDueAt,lastMessageId,filed," +
			"skipped,missedRuns,refused,refusal,createdAt,changedAt\r\nnightly,'@daily,Europe/Berlin,false,,,skip,none," +
			"2026-03-28T13:00:00Z,,,0,0,4,0,,2026-03-28T12:00:00Z,2026-03-28T12:00:00Z\r\n",
		"?format=json": `{"schedules":[{"name":"nightly","cron":"@daily",`,
	} {
		w := serveRequest(f, "GET", query, "")
		if w.Code != 200 || !strings.HasPrefix(w.Body.String(), want) ||
			!strings.Contains(w.Header().Get("Content-Disposition"), `filename="weir-schedules.`) {
			t.Errorf("%s: got %d %v %s, want 200 and the file %s", query, w.Code, w.Header(),
				w.Body, want)
		}
	}

	if w := serveRequest(f, "GET", "?format=pdf", ""); w.Code != 400 {
		t.Errorf("got %d %s, want 400 for an unknown format", w.Code, w.Body)
	}

	f.err = &weir.Error{Kind: weir.Unavailable, Op: "schedules", Message: "away"}
	if w := serveRequest(f, "GET", "?format=csv", ""); w.Code != 503 {
		t.Errorf("got %d %s, want 503 when storage is away", w.Code, w.Body)
	}
}

func TestFunction_ShowsNoRedactedValues(t *testing.T) {
	t.Parallel()
	contracts, err := contract.New(
		[]contract.Definition{{Name: "a", Root: "a", Redact: []string{"./pan"}}},
		contract.Limits{MaxBody: 1000})
	if err != nil {
		t.Fatal(err)
	}

	for message, want := range map[string]string{
		`<a><pan>4711</pan><b>{{.Run}}</b></a>`: `"message":"<a><pan>[redacted]</pan><b>{{.Run}}</b></a>"`,
		`<a><pan>4711</pan>`:                    `"contentType":"text/xml"`,
	} {
		f := &fake{put: recur.Definition{Message: []byte(message), ContentType: "text/xml"}}
		fn := &schedules.Function{Schedules: f, Stored: f, Contracts: contracts,
			Intake: httpio.NewIntake(1, 7000), Turns: httpio.NewTurns(1 << 20), MaxBody: 1000,
			Now: func() time.Time { return noon }, Logger: slog.New(slog.DiscardHandler)}
		mux := http.NewServeMux()
		for path, h := range fn.Routes() {
			mux.Handle("/api/schedules"+path, h)
		}

		for _, request := range []string{"GET /nightly", "GET ", "POST /nightly/pause",
			"POST /nightly/resume"} {
			method, path, _ := strings.Cut(request, " ")
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(method,
				"http://weir.example/api/schedules"+path, nil))
			if w.Code != 200 || strings.Contains(w.Body.String(), "4711") {
				t.Errorf("%s of %s: got %d %s, want no 4711", request, message, w.Code, w.Body)
			}

			if request == "GET /nightly" && !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s of %s: got %s, want %s", request, message, w.Body, want)
			}
		}
	}
}
