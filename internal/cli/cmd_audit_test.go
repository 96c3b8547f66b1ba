package cli

import (
	"strings"
	"testing"
)

const (
	auditPause = `{"at":"2026-01-08T12:00:00Z","action":"pause","detail":{"all":true},"function":"write","status":200,` +
		`"principal":"jo@example.com","keyId":"3fa9c2d1","from":"203.0.113.4"}`
	auditCancel = `{"at":"2026-01-08T11:00:00Z","action":"cancel","subject":"AQABL714SFvJDd7dAA","function":"cancel",` +
		`"status":202,"from":"198.51.100.7"}`
	auditControl = `{"at":"2026-01-08T10:00:00Z","action":"edit","subject":"x\u001b[31m","function":"write"}`
)

func TestAudit_PrintsEntriesOfAllPages(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answerJSON("GET /api/audit", 200, `{"entries":[`+auditPause+`],"continue":"row1"}`,
		`{"entries":[],"continue":"row2"}`, `{"entries":[`+auditCancel+`,`+auditControl+`]}`)
	got := f.runCommand("audit", "--limit", "600")
	got.expectEnd(t, exitOK, `{"all":true}`, "")

	for _, want := range []string{"AT                    ACTION  SUBJECT",
		"jo@example.com key 3fa9c2d1", "203.0.113.4",
		"2026-01-08 11:00:00Z  cancel  AQABL714SFvJDd7dAA", "202"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("got\n%s\nwant %q in it", got.out, want)
		}
	}

	if strings.Contains(got.out, "\x1b") || strings.Contains(got.out, "There is more") {
		t.Errorf("got\n%q\nwant no control characters, and no note that there is more", got.out)
	}

	want := "GET /api/audit?limit=500 \nGET /api/audit?continue=row1&limit=500 \nGET /api/audit?continue=row2&limit=500 "
	if got := f.receivedRequests(); got != want {
		t.Errorf("got the requests\n%s\nwant\n%s", got, want)
	}
}

func TestAudit_Filters(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answerJSON("GET /api/audit", 200, `{"entries":[`+auditCancel+`],"continue":"row1"}`)
	f.runCommand("audit", "--action", "cancel", "--subject", "AQABL714SFvJDd7dAA", "--limit", "1").expectEnd(t, exitOK,
		"There is more: raise --limit.\n", "")
	f.runCommand("audit", "--limit", "1", "--json").expectEnd(t, exitOK, "["+auditCancel+"]\n", "")
	want := "GET /api/audit?action=cancel&limit=1&subject=AQABL714SFvJDd7dAA \nGET /api/audit?limit=1 "
	if got := f.receivedRequests(); got != want {
		t.Errorf("got the requests\n%s\nwant\n%s", got, want)
	}
}

func TestAudit_NoEntry(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answerJSON("GET /api/audit", 200, `{"entries":[]}`)
	f.runCommand("audit").expectEnd(t, exitOK, "There is no entry.\n", "")
	f.runCommand("audit", "--json").expectEnd(t, exitOK, "[]\n", "")
	f.runCommand("audit", "--limit", "0").expectEnd(t, exitUsage, "", "--limit must be 1 or more")
	f.runCommand("audit", "all").expectEnd(t, exitUsage, "", "unknown command")
}

func TestAudit_NamesTheErasure(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answerJSON("GET /api/audit", 200,
		`{"entries":[{"at":"2026-01-08T12:00:00Z","action":"edit","function":"write",`+
			`"redactedBy":["AQABL714SFvJDd7dAA"]}]}`)
	f.runCommand("audit").expectEnd(t, exitOK,
		"(redacted by the erasure of AQABL714SFvJDd7dAA)", "")
}
