package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const scheduleCounts = `"nextRun":3,"filed":2,"skipped":0,"missed":0,"refused":1,"createdAt":"2026-01-01T00:00:00Z",` +
	`"changedAt":"2026-01-01T00:00:00Z"`

const (
	scheduleNightly = `{"name":"nightly","cron":"30 2 * * *","timeZone":"Europe/Berlin",` +
		`"contentType":"application/xml","overlap":"queue","missed":"one","paused":false,"state":{"nextAt":"2026-03-28T01:30:00Z",` +
		`"lastDueAt":"2026-03-27T01:30:00Z","lastMessageId":"AQ1","refusal":"no\u001b[31m title",` +
		scheduleCounts + `}}`
	scheduleHourly = `{"name":"hourly","cron":"@hourly","timeZone":"UTC","contentType":"application/xml",` +
		`"overlap":"queue","missed":"one","paused":true,"state":{` + scheduleCounts + `}}`
	scheduleOver = `{"name":"over","cron":"@hourly","timeZone":"UTC","contentType":"application/xml",` +
		`"overlap":"queue","missed":"one","paused":false,"state":{` + scheduleCounts + `}}`
	previewNightly = `{"runs":[{"dueAt":"2026-03-28T01:30:00Z","localTime":"2026-03-28T02:30:00","offset":"+01:00"}],` +
		`"skipped":[{"localTime":"2026-03-29T02:30:00","clocksChangeAt":"2026-03-29T01:00:00Z","runs":0,` +
		`"note":"clocks are set forward"}],"doubled":[]}`
)

func TestSchedules_List(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.mux.HandleFunc("GET /api/schedules", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("format") == "csv" {
			w.Header().Set("Content-Type", "text/csv; charset=utf-8")
			w.Write([]byte("name,cron\r\n"))
			return
		}

		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"schedules":[` + scheduleNightly + `,` + scheduleHourly + `,` +
			scheduleOver + `]}`))
	})

	got := f.runCommand("schedules", "list")
	got.expectEnd(t, exitOK, "nightly  30 2 * * *  Europe/Berlin  2026-03-28 01:30:00Z  2026-03-27 01:30:00Z  AQ1  ",
		"")

	for _, want := range []string{"hourly   @hourly     UTC            paused",
		"over     @hourly     UTC            over"} {
		if !strings.Contains(got.out, want) || strings.Contains(got.out, "\x1b") {
			t.Errorf("got\n%q\nwant %q in it, and no control characters", got.out, want)
		}
	}

	if lines := f.runCommand("schedules", "list",
		"--json").parseLines(t); len(lines) != 1 || lines[0]["schedules"] == nil {
		t.Errorf("got %v, want one line with the schedules", lines)
	}

	f.runCommand("schedules", "list", "--format", "csv").expectEnd(t, exitOK, "name,cron\r\n", "")
	f.runCommand("schedules", "list", "--format", "csv", "--json").expectEnd(t, exitUsage, "",
		"--format does not go with --json")
	f.runCommand("schedules").expectEnd(t, exitUsage, "", "give list, next, create")
	f.runCommand("schedules", "lst").expectEnd(t, exitUsage, "", "did you mean list")
}

func TestSchedules_ChangeOne(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answerJSON("GET /api/schedules/nightly/preview", 200, previewNightly)
	f.answerJSON("POST /api/schedules/nightly/pause", 200,
		strings.Replace(scheduleHourly, "hourly", "nightly", 1))
	f.answerJSON("POST /api/schedules/nightly/resume", 200, scheduleNightly)
	f.answerJSON("POST /api/schedules/nightly/run", 202,
		`{"id":"AQ2","stage":"queued","key":"/a","lane":0,"sequence":1,`+
			`"acceptedAt":"2026-01-01T00:00:00Z","run":3}`)
	f.answerJSON("DELETE /api/schedules/nightly", 200, `{"name":"nightly","deleted":true}`)
	f.answerJSON("POST /api/schedules/other/run", 404, "there is no schedule of this name")

	for _, c := range []struct{ args, out string }{
		{"next nightly --count 1",
			"2026-03-28 01:30:00Z  2026-03-28T02:30:00+01:00\n2026-03-29T02:30:00: clocks are set forward."},
		{"pause nightly", "Schedule nightly, next run: paused.\n"},
		{"resume nightly", "Schedule nightly, next run: 2026-03-28 01:30:00Z.\n"},
		{"run nightly", "Message AQ2 is stored.\n"},
		{"delete nightly --yes", "Schedule nightly is deleted.\n"},
		{"delete nightly -y --json", `"deleted":true`},
	} {
		f.runCommand(append([]string{"schedules"}, strings.Fields(c.args)...)...).expectEnd(t,
			exitOK, c.out, "")
	}

	f.runCommand("schedules", "run", "other").expectEnd(t, exitNotFound, "",
		"there is no schedule of this name")
	before := f.receivedRequests()
	f.runCommand("schedules", "delete", "nightly").expectEnd(t, exitUsage, "", "add --yes")
	f.runCommand("schedules", "pause").expectEnd(t, exitUsage, "", "give a schedule's name")

	for _, name := range []string{"", "..", "my report", "a/b", "é", strings.Repeat("a", 65)} {
		for _, command := range []string{"next", "create", "pause", "resume", "run", "delete"} {
			f.runCommand("schedules", command, name).expectEnd(t, exitUsage, "",
				"is no schedule's name: it has 1 to 64")
		}
	}

	if !strings.Contains(before, "/preview?count=1 ") {
		t.Errorf("got the requests\n%s\nwant the parameter count=1 of the preview", before)
	}

	if after := f.receivedRequests(); after != before {
		t.Errorf("after refused commands: got the requests\n%s\nwant those before them\n%s",
			after, before)
	}
}

func TestSchedules_Create(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.mux.HandleFunc("PUT /api/schedules/nightly", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") == "*" &&
			strings.Contains(f.receivedRequests(), "DELETE") {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusPreconditionFailed)
			w.Write([]byte(`{"type":"about:blank","title":"x","status":412,"detail":"the schedule exists"}`))
			return
		}

		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(scheduleNightly))
	})

	f.answerJSON("POST /api/schedules/nightly/preview", 200, previewNightly)
	f.answerJSON("DELETE /api/schedules/nightly", 200, `{"name":"nightly","deleted":true}`)
	dir := t.TempDir()
	write := func(name string, body []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, body, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}

	report := write("report.xml", []byte("<report/>"))
	create := []string{"schedules", "create", "nightly", report, "--cron", "30 2 * * *"}
	with := func(more ...string) []string {
		return append(create[:len(create):len(create)], more...)
	}
	f.runCommand(with("--time-zone", "Europe/Berlin", "--overlap", "skip", "--start", "2026-01-31T08:00:00+01:00")...).
		expectEnd(t, exitOK, "Schedule nightly, next run: 2026-03-28 01:30:00Z.\n", "")
	want := `PUT /api/schedules/nightly {"cron":"30 2 * * *","timeZone":"Europe/Berlin",` +
		`"message":"\u003creport/\u003e","overlap":"skip","start":"2026-01-31T07:00:00Z"}`
	if got := f.receivedRequests(); got != want {
		t.Errorf("got the request\n%s\nwant\n%s", got, want)
	}

	f.runCommand(with("--dry-run")...).expectEnd(t, exitOK, "2026-03-28T02:30:00+01:00", "")
	f.runCommand("schedules", "delete", "nightly", "-y")
	f.runCommand(create...).expectEnd(t, exitRefused, "",
		"a schedule of this name exists: add --replace")
	f.runCommand(with("--replace", "--json")...).expectEnd(t, exitOK, `"name":"nightly"`, "")
	before := f.receivedRequests()

	for text, args := range map[string][]string{
		"--cron is needed":   {"schedules", "create", "nightly", report},
		"either the file":    with("--message-id", "AQ1"),
		"either the file of": {"schedules", "create", "nightly", "--cron", "@daily"},
		"is not UTF-8": {"schedules", "create", "nightly",
			write("u16.xml", []byte{0xff, 0xfe}), "--cron", "@daily"},
		"empty.xml is empty": {"schedules", "create", "nightly", write("empty.xml", nil),
			"--cron", "@daily"},
		"no such file": {"schedules", "create", "nightly", filepath.Join(dir, "none"),
			"--cron", "@daily"},
		"--end: ":                 with("--end", "tomorrow"),
		"a schedule's name, and ": {"schedules", "create"},
	} {
		f.runCommand(args...).expectEnd(t, exitUsage, "", text)
	}

	if after := f.receivedRequests(); after != before {
		t.Errorf("after the refused commands: got the requests\n%s\nwant those before them\n%s",
			after, before)
	}
}

func TestExportFlag_PrintsListsAsFiles(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	for _, pattern := range []string{"GET /api/messages", "GET /api/errors", "GET /api/audit"} {
		f.mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/csv; charset=utf-8")
			w.Write([]byte("a,b\r\n"))
		})
	}

	for _, args := range []string{"dead list --format csv --from 2026-01-01T00:00:00Z",
		"dead list --errors --format csv",
		"dead list --errors --format csv --limit 7",
		"audit --format csv --action pause --limit 9"} {
		f.runCommand(strings.Fields(args)...).expectEnd(t, exitOK, "a,b\r\n", "")
	}

	const want = "GET /api/messages?finishedFrom=2026-01-01T00%3A00%3A00Z&format=csv&stage=dead \n" +
		"GET /api/errors?format=csv&limit=200 \nGET /api/errors?format=csv&limit=7 \n" +
		"GET /api/audit?action=pause&format=csv&limit=9 "
	if got := f.receivedRequests(); got != want {
		t.Errorf("got the requests\n%s\nwant\n%s", got, want)
	}

	f.runCommand("dead", "list", "--format", "xml").expectEnd(t, exitUsage, "",
		"--format must be csv or json")
}
