package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/wire"
)

func TestDeadList(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	line := dead1 + `,"size":9}`
	f.answerJSON("GET /api/messages", 200,
		`{"messages":[`+line+`],"looked":20000,"complete":false,"continue":"t0"}`,
		`{"messages":[`+line+`],"looked":1,"complete":true}`)
	f.runCommand("dead", "list", "--lane", "1", "--contract", "article", "--from",
		"2026-01-01T00:00:00Z", "--text", "locked").
		expectEnd(t, exitOK, "2026-01-08 12:01:00Z  AQ1  article   /a\ufffd[2J  5         the index is "+
			"locked\n2026-01-08 12:01:00Z  AQ1", "")

	want := "GET /api/messages?contract=article&finishedFrom=2026-01-01T00%3A00%3A00Z&lane=1&limit=50&stage=dead&" +
		"text=locked \n" +
		"GET /api/messages?continue=t0&contract=article&finishedFrom=2026-01-01T00%3A00%3A00Z&lane=1&limit=49&" +
		"stage=dead&text=locked "
	if got := f.receivedRequests(); got != want {
		t.Errorf("got the requests\n%s\nwant\n%s", got, want)
	}

	if lines := f.runCommand("dead", "list", "--key", "/a", "--fingerprint", "0123456789ab", "--json").
		parseLines(t); len(lines) != 1 || lines[0]["complete"] != true {
		t.Errorf("got %v, want one complete line", lines)
	}
}

func TestDeadList_ThereIsMore(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answerJSON("GET /api/messages", 200,
		`{"messages":[`+dead1+`,"size":9}],"looked":1,"complete":false,`+`"continue":"t0"}`)
	f.runCommand("dead", "list", "--limit", "1").expectEnd(t, exitOK,
		"There is more: raise --limit.\n", "")
}

func TestDeadList_Nothing(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answerJSON("GET /api/messages", 200, `{"messages":[],"looked":0,"complete":true}`)
	f.answerJSON("GET /api/errors", 200, `{"errors":[],"looked":0,"complete":true}`)
	f.runCommand("dead", "list").expectEnd(t, exitOK, "No dead messages.\n", "")
	f.runCommand("dead", "list", "--errors").expectEnd(t, exitOK, "No dead messages.\n", "")
}

func TestDeadErrors(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answerJSON("GET /api/errors", 200,
		`{"errors":[{"fingerprint":"0123456789ab","contract":"article",`+
			`"cmsStatus":500,"message":"the index is locked by #","count":12,"keys":3,
		"firstAt":"2026-01-08T12:00:00Z","lastAt":"2026-01-08T13:00:00Z","sample":{"id":"AQ1","key":"/a","reason":"r"}}],"looked":12,"complete":true}`)

	f.runCommand("dead", "list", "--errors").expectEnd(t, exitOK,
		"2026-01-08 13:00:00Z  0123456789ab  12     3     "+
			"article   500  the index is locked by #  /a: r\n", "")

	if lines := f.runCommand("dead", "list", "--errors", "--json").parseLines(t); len(lines) != 1 ||
		lines[0]["looked"] != 12.0 {
		t.Errorf("got %v, want one line with looked 12", lines)
	}
}

func TestDeadShow(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answerJSON("GET /api/messages/AQ1", 200, story1)
	f.answerJSON("GET /api/messages/none/body", 404, "there is no such message")
	latin := "<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe4</a>"
	body := "<a>\n\t\u009b31m\u202e</a>"
	f.mux.HandleFunc("GET /api/messages/{id}/body", func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{"Content-Type": "application/xml", "ETag": `"1"`,
			"Content-Disposition": `attachment; filename="x"`, "Content-Security-Policy": "sandbox",
			"X-Content-Type-Options": "nosniff"} {
			w.Header().Set(name, value)
		}

		switch {
		case r.URL.Query().Get("which") == "edited":
			fmt.Fprint(w, "corrected")
			return
		case r.PathValue("id") == "AQ3":
			fmt.Fprint(w, latin)
			return
		}

		fmt.Fprint(w, body)
	})

	f.runCommand("dead", "show", "AQ1").expectEnd(t, exitOK,
		"The CMS's answer to attempt 1:\nno\ufffd\nnever\n\nThe "+
			"body, 17 bytes:\n<a>\n\t\ufffd31m\ufffd</a>\n", "")
	if d := f.runCommand("dead", "show", "AQ1", "--body"); d.code != exitOK || d.out != body {
		t.Errorf("got %+v, want the body %q", d, body)
	}

	f.runCommand("dead", "show", "AQ1", "--body", "--edited").expectEnd(t, exitOK, "corrected", "")
	f.mux.HandleFunc("POST /api/messages/AQ1/reveal", func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range map[string]string{"Content-Type": "application/xml",
			"Content-Disposition": `attachment; filename="x"`, "Content-Security-Policy": "sandbox",
			"X-Content-Type-Options": "nosniff"} {
			w.Header().Set(name, value)
		}
		fmt.Fprint(w, "<whole/>")
	})

	f.runCommand("dead", "show", "AQ1", "--reveal").expectEnd(t, exitOK, "<whole/>", "")
	f.answerJSON("POST /api/messages/AQ9/reveal", 404, "there is no such message")
	f.runCommand("dead", "show", "AQ9", "--reveal", "--edited").expectEnd(t, exitNotFound, "",
		"no such message")

	if lines := f.runCommand("dead", "show", "AQ1", "--json").parseLines(t); len(lines) != 1 ||
		lines[0]["body"] != body {
		t.Errorf("got %v, want one line with the body %q", lines, body)
	}

	f.answerJSON("GET /api/messages/AQ2", 200, strings.TrimSuffix(story1,
		"}")+`,"edited":{"at":"2026-01-08T12:00:58Z"}}`)
	f.answerJSON("GET /api/messages/AQ2/difference", 200,
		`{"difference":"-<a>\u009b</a>\n+<b/>\n"}`)
	f.runCommand("dead", "show", "AQ2").expectEnd(t, exitOK,
		"</a>\n\nWhat the correction changed:\n-<a>\ufffd</a>\n+<b/>\n", "")

	if lines := f.runCommand("dead", "show", "AQ2", "--json").parseLines(t); len(lines) != 1 ||
		lines[0]["difference"] != "-<a>\u009b</a>\n+<b/>\n" {
		t.Errorf("got %v, want one line with the difference", lines)
	}

	f.answerJSON("GET /api/messages/AQ3", 200, story1)
	f.runCommand("dead", "show", "AQ3").expectEnd(t, exitOK,
		fmt.Sprintf("The body, %d bytes:\n<a>ä</a>\n", len(latin)), "")

	if lines := f.runCommand("dead", "show", "AQ3", "--json").parseLines(t); len(lines) != 1 ||
		lines[0]["body"] != "<a>ä</a>" {
		t.Errorf("got %v, want one line with the body in UTF-8", lines)
	}

	if d := f.runCommand("dead", "show", "AQ3", "--body"); d.code != exitOK || d.out != latin {
		t.Errorf("got %+v, want the body %q", d, latin)
	}

	f.runCommand("dead", "show", "none").expectEnd(t, exitNotFound, "", "no such message")
}

func TestDeadReplay_Named(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answerJSON("POST /api/messages/AQ1/replay", 202, story1)
	f.answerJSON("POST /api/messages/AQ1/edit", 202, story1)
	f.answerJSON("POST /api/messages/AQ2/replay", 409, "a later one of its key was delivered")
	f.runCommand("dead", "replay", "AQ2", "AQ1").expectEnd(t, exitRefused,
		"AQ1: replay requested\n", "AQ2: 409 Conflict: a later one of its key was delivered\n")

	if lines := f.runCommand("dead", "replay", "AQ1", "--force", "--json").parseLines(t); len(lines) != 1 ||
		lines[0]["id"] != "AQ1" {
		t.Errorf("got %v, want one line with the id AQ1", lines)
	}

	name := filepath.Join(t.TempDir(), "a.xml")
	if err := os.WriteFile(name, []byte("<a/>"), 0o600); err != nil {
		t.Fatal(err)
	}

	f.runCommand("dead", "replay", "AQ1", "--with", name, "--note", "title added").expectEnd(t,
		exitOK, "replay requested", "")
	want := "POST /api/messages/AQ2/replay \nPOST /api/messages/AQ1/replay \nPOST " +
		"/api/messages/AQ1/replay?force=true \nPOST /api/messages/AQ1/edit?note=title+added <a/>"
	if got := f.receivedRequests(); got != want {
		t.Errorf("got the requests\n%s\nwant\n%s", got, want)
	}
}

// jobJSON returns a bulk replay as JSON. The parameter "counts" is the JSON of the fields from
// "matched" to "otherwise".
func jobJSON(state, counts string) string {
	return `{"id":"r1","state":"` + state +
		`","filter":{},"ratePerMinute":60,"stopAtErrorRate":0.5,"force":false,` +
		counts + `,"startedAt":"2026-01-08T12:00:00Z","updatedAt":"2026-01-08T12:00:00Z"}`
}

func TestDeadReplay_Matching(t *testing.T) {
	t.Parallel()
	const plan = `{"count":12,"complete":true,"estimatedSeconds":61.4,"keys":3,"refused":1}`
	const none = `"matched":12,"replayed":0,"refused":0,"delivered":0,"deadAgain":0,"waiting":0,"skipped":0,` +
		`"otherwise":0`
	const all = `"matched":12,"replayed":11,"refused":1,"delivered":11,"deadAgain":0,"waiting":0,"skipped":0,` +
		`"otherwise":0`
	newReplays := func(t *testing.T, plan string) *fakeServer {
		f := newFakeServer(t)
		f.mux.HandleFunc("POST /api/replays", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if f.receivedRequests(); strings.Contains(lastLine(f.receivedRequests()),
				`"dryRun":true`) {
				fmt.Fprint(w, plan)
				return
			}

			w.Header().Set("Location", f.server.URL+"/api/replays/r1")
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, jobJSON("running", none))
		})

		return f
	}

	t.Run("DryRun", func(t *testing.T) {
		t.Parallel()
		f := newReplays(t, plan)
		f.runCommand("dead", "replay", "--fingerprint", "0123456789ab", "--dry-run").expectEnd(t,
			exitOK,
			"About 12 messages of 3 keys. 1 would be refused (--force replays them). The replay would take 1m1s.\n", "")

		if got := f.receivedRequests(); got !=
			`POST /api/replays {"filter":{"fingerprint":"0123456789ab"},`+
				`"dryRun":true}` {
			t.Errorf("got the requests\n%s\nwant one with dryRun", got)
		}
	})

	t.Run("WithoutATerminal", func(t *testing.T) {
		t.Parallel()
		f := newReplays(t, plan)
		f.runCommand("dead", "replay", "--all").expectEnd(t, exitUsage, "12 messages", "add --yes")
		if strings.Contains(f.receivedRequests(), "\n") {
			t.Errorf("got the requests\n%s\nwant one", f.receivedRequests())
		}
	})

	t.Run("NoMessages", func(t *testing.T) {
		t.Parallel()
		f := newReplays(t, `{"count":0,"complete":true,"estimatedSeconds":0,"keys":0,"refused":0}`)
		f.runCommand("dead", "replay", "--all", "--yes").expectEnd(t, exitOK, "0 messages", "")
		if strings.Contains(f.receivedRequests(), "\n") {
			t.Errorf("got the requests\n%s\nwant one", f.receivedRequests())
		}
	})

	t.Run("Yes", func(t *testing.T) {
		t.Parallel()
		f := newReplays(t, plan)
		f.runCommand("dead", "replay", "--key", "/a", "--lane", "0", "--yes", "--rate", "120",
			"--stop-at-error-rate", "0", "--reason", "fixed", "--force").
			expectEnd(t, exitOK, "Replay r1 is running: 12 matched, 0 replayed", "")

		if got := lastLine(f.receivedRequests()); got !=
			`POST /api/replays {"filter":{"key":"/a","lane":0},`+
				`"ratePerMinute":120,"stopAtErrorRate":0,"force":true,"reason":"fixed"}` {
			t.Errorf("got the last request\n%s\nwant one without dryRun", got)
		}
	})

	t.Run("Watched", func(t *testing.T) {
		t.Parallel()
		f := newReplays(t, plan)
		f.answerJSON("GET /api/replays/r1", 200, jobJSON("done", all))

		if lines := f.runCommand("dead", "replay", "--all", "--yes", "--wait", "--json").
			parseLines(t); len(lines) != 2 || lines[1]["state"] != "done" {
			t.Errorf("got %v, want two lines, the last with the state done", lines)
		}
	})

	t.Run("WatchedWithoutChange", func(t *testing.T) {
		t.Parallel()
		f, reads := newReplays(t, plan), 0
		f.mux.HandleFunc("GET /api/replays/r1", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			state, counts := "running", none
			if reads++; reads == 5 {
				state, counts = "done", all
			}

			fmt.Fprint(w, strings.Replace(jobJSON(state, counts), `"filter":{}`,
				`"filter":{"lane":0}`, 1))
		})

		run := f.runCommand("dead", "replay", "--lane", "0", "--yes", "--wait")
		if n := strings.Count(run.out, "Replay r1 is running"); n > 2 {
			t.Errorf("got %d lines of the running replay, which did not change, in\n%s\nwant 2 at most", n, run.out)
		}
	})

	t.Run("HeldUp", func(t *testing.T) {
		t.Parallel()
		f, reads := newReplays(t, plan), 0
		f.mux.HandleFunc("GET /api/replays/r1", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			state, counts := "running", none
			if reads++; reads == 6 {
				state, counts = "done", all
			}
			fmt.Fprint(w, strings.Replace(jobJSON(state, counts), `"waiting":0`, `"waiting":3`, 1))
		})

		f.mux.HandleFunc("GET /api/lanes", func(w http.ResponseWriter, _ *http.Request) {
			list := wire.LaneList{Lanes: []wire.Lane{{Number: 1, Pauses: []wire.Pause{}},
				{Number: 2, PausedBy: "cms",
					PauseReason: "connection refused", Pauses: []wire.Pause{},
					PausedUntil: time.Date(2026, 1, 8, 12, 0, reads, 0, time.UTC)}}}

			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(list); err != nil {
				t.Error(err)
			}
		})

		out := f.runCommand("dead", "replay", "--all", "--yes", "--wait").out
		const want = "Waiting: lane 2 is paused, because the CMS is unavailable: connection refused. Next try at " +
			"2026-01-08 12:00:0"
		if strings.Count(out, want) != 1 {
			t.Errorf("got\n%s\nwant %q once, although the time of the next try changes", out, want)
		}
	})

	t.Run("Stopped", func(t *testing.T) {
		t.Parallel()
		f := newReplays(t, plan)
		f.answerJSON("GET /api/replays/r1", 200,
			jobJSON("stopped", none+`,"stopReason":"half of them died again"`))
		f.runCommand("dead", "replay", "--all", "--yes", "--wait").expectEnd(t, exitFailed,
			"stopped: half of them died again: 12 matched", "the replay was stopped")
	})

	t.Run("DeadAgain", func(t *testing.T) {
		t.Parallel()
		f := newReplays(t, plan)
		f.answerJSON("GET /api/replays/r1", 200,
			jobJSON("done", strings.NewReplacer(`"deadAgain":0`, `"deadAgain":2`,
				`"otherwise":0`, `"otherwise":1`, `"skipped":0`, `"skipped":3`).Replace(all)))
		f.runCommand("dead", "replay", "--all", "--yes", "--wait").expectEnd(t, exitFailed,
			"1 refused, 3 not dead any more; 11 delivered, 2 dead again, 1 superseded, cancelled or gone, 0 waiting",
			"dead again: 2 messages")
	})
}

func lastLine(s string) string { return s[strings.LastIndex(s, "\n")+1:] }

func TestTail(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	line := func(id, stage string) string {
		return fmt.Sprintf(`{"id":%q,"stage":%q,"contract":"a","key":"/a","lane":0,"sequence":1,"attempts":1,`+
			`"acceptedAt":"2026-01-08T12:00:00Z","lastError":"locked","size":3}`, id, stage)
	}

	page := func(more string, lines ...string) string {
		return `{"messages":[` + strings.Join(lines, ",") +
			`],"looked":1,"complete":true` + more + `}`
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reads := 0
	f.mux.HandleFunc("GET /api/messages", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch reads++; reads {
		case 1: // tail -n 2 prints only two of the three messages
			fmt.Fprint(w, page(`,"continue":"t"`, line("A3", "queued"), line("A2", "queued"),
				line("A1", "delivered")))
		case 2: // A4 is new, and A3 has another stage
			fmt.Fprint(w, page("", line("A4", "queued"), line("A3", "dead"),
				line("A2", "queued"), line("A1", "delivered")))
		case 3: // A6 is new and alone in the page, so tail reads the next page
			fmt.Fprint(w, page(`,"continue":"t"`, line("A6", "queued")))
		case 4:
			if r.URL.Query().Get("continue") != "t" {
				t.Errorf("got %s, want the token t", r.URL)
			}
			fmt.Fprint(w, page(`,"continue":"u"`, line("A5", "queued"), line("A4", "queued")))

		case 5:
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"type":"about:blank","title":"x","status":503,"detail":"storage is away"}`)

		case 6:
			fmt.Fprint(w, page("", line("A6", "delivered")))
		default:
			cancel()
			fmt.Fprint(w, page(""))
		}
	})

	s, stdout, stderr := f.newConsole()
	d := commandResult{s.runCommand(ctx,
		[]string{"tail", "-n", "2", "--lane", "0", "--key", "/a", "--stage", "queued",
			"--interval", "100ms"}), stdout.String(), stderr.String()}
	var got []string
	for l := range strings.Lines(d.out) {
		fields := strings.Fields(l)
		got = append(got, fields[3]+" "+fields[2])
	}

	if want := "A2 queued, A3 queued, A3 dead, A4 queued, A5 queued, A6 queued, A6 delivered"; strings.Join(got,
		", ") != want || d.code != exitOK || !strings.Contains(d.errors, "storage is away") {
		t.Errorf("got %v and %+v, want %s, exit code %d and the error of storage", got, d,
			want, exitOK)
	}

	if !strings.Contains(d.out, "/a: locked\n") || !strings.HasPrefix(f.receivedRequests(),
		"GET /api/messages?key=%2Fa&lane=0&limit=100&stage=queued ") {
		t.Errorf("got %s\nand the requests %s\nwant the reason of the dead message, and the filter in the first "+
			"request", d.out,
			f.receivedRequests())
	}
}

func TestAskConfirmation_NoTerminal(t *testing.T) {
	t.Parallel()
	s, _, _ := newFakeServer(t).newConsole()
	if yes, err := s.askConfirmation(t.Context(), "?"); yes || err == nil {
		t.Errorf("got %v (%v), want an error without a terminal", yes, err)
	}
}

func TestParseTimeOrAge(t *testing.T) {
	t.Parallel()
	if at, err := parseTimeOrAge("from", "24h"); err != nil || time.Since(*at) < 24*time.Hour ||
		time.Since(*at) > 25*time.Hour {
		t.Errorf("got %v (%v), want a day ago", at, err)
	}

	if at, err := parseTimeOrAge("from", "2026-01-08T12:00:00+01:00"); err != nil ||
		at.UTC().Hour() != 11 {
		t.Errorf("got %v (%v), want 11 o'clock", at, err)
	}

	for _, text := range []string{"yesterday", "-1h", "2026-01-08"} {
		if _, err := parseTimeOrAge("from", text); err == nil {
			t.Errorf("parseTimeOrAge(%q) = nil, want an error", text)
		}
	}
}
