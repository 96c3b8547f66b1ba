package cli

import (
	"strings"
	"testing"
)

// cancelled1 is the beginning of an answer of POST /api/cancellations. The value of "complete" is
// missing.
const cancelled1 = `{"selected":2,"cancelled":1,"asked":1,"tooLate":0,"to":"2026-01-08T12:00:00Z","complete":`

func TestCancel_Named(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answerJSON("POST /api/messages/AQ1/cancel", 202, story1)
	f.answerJSON("POST /api/messages/none/cancel", 404, "there is no such message")
	f.runCommand("cancel", "AQ1").expectEnd(t, exitOK, "AQ1: cancellation requested\n", "")
	f.runCommand("cancel", "AQ1", "--reason", "sent twice").expectEnd(t, exitOK,
		"AQ1: cancellation requested\n", "")

	if got, want := f.receivedRequests(), "/cancel?reason=sent+twice"; !strings.Contains(got,
		want) {
		t.Errorf("got the requests\n%s\nwant one with %s", got, want)
	}

	f.runCommand("cancel", "AQ1", "none").expectEnd(t, exitNotFound, "cancellation requested",
		"there is no such message")
}

func TestCancel_Batches(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	const counts = `,"mode":"all","format":"xml","bytes":1,"parts":1000,"invalid":0,"filed":600,` +
		`"acceptedAt":"2026-01-08T12:00:00Z","updatedAt":"2026-01-08T12:00:00Z"}`
	f.answerJSON("DELETE /api/batches/b1", 202, `{"id":"b1","state":"filing"`+counts)
	f.answerJSON("DELETE /api/batches/b2", 200, `{"id":"b2","state":"cancelled"`+counts)
	f.answerJSON("DELETE /api/batches/b3", 409, "the batch has ended: it is filed")
	f.runCommand("cancel", "--batch", "b1", "b2").expectEnd(t, exitOK,
		"Batch b1: cancellation requested\nBatch b2 is cancelled; 600 of 1000 parts are messages.\n", "")
	f.runCommand("cancel", "--batch", "b3", "b2").expectEnd(t, exitRefused, "Batch b2 is cancelled",
		"it is filed")
	f.runCommand("cancel", "--batch").expectEnd(t, exitUsage, "",
		"--batch needs the IDs of batches")
	f.runCommand("cancel", "--batch", "--reason", "late", "b1").expectEnd(t, exitUsage, "",
		"--reason does not go with --batch")
	f.runCommand("cancel", "--batch", "--all", "b1").expectEnd(t, exitUsage, "",
		"--all does not go with IDs")

	if lines := f.runCommand("cancel", "--batch", "--json", "b2").parseLines(t); len(lines) != 1 ||
		lines[0]["state"] != "cancelled" {
		t.Errorf("got %v, want the cancelled batch", lines)
	}
}

func TestCancel_Matching(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answerJSON("POST /api/cancellations", 202, cancelled1+`false,"continue":"t0"}`,
		cancelled1+`true}`)
	f.runCommand("cancel", "--key-prefix", "/new/", "--stage", "queued", "--yes", "--reason", "one by one").
		expectEnd(t, exitOK, "2 messages: 1 cancelled, 1 requested, 0 came too late.\n", "")
	want := `POST /api/cancellations {"filter":{"keyPrefix":"/new/","stage":"queued"},"dryRun":true}
POST /api/cancellations {"filter":{"keyPrefix":"/new/","stage":"queued"},"dryRun":true,"continue":"t0"}
POST /api/cancellations {"filter":{"keyPrefix":"/new/","stage":"queued","to":"2026-01-08T12:00:00Z"},"reason":"one by one"}`
	if got := f.receivedRequests(); got != want {
		t.Errorf("got the requests\n%s\nwant\n%s", got, want)
	}

	f.runCommand("cancel", "--key", "/a", "--dry-run").expectEnd(t, exitOK,
		"2 messages would be cancelled.\n", "")
	f.runCommand("cancel", "--key", "/a").expectEnd(t, exitUsage, "",
		"there is no terminal to ask at: add --yes")

	if lines := f.runCommand("cancel", "--all", "--yes", "--json").parseLines(t); len(lines) != 1 ||
		lines[0]["cancelled"] == nil {
		t.Errorf("got %v, want one line with cancelled", lines)
	}

	wantAll := `{"filter":{"to":"2026-01-08T12:00:00Z"}}`
	if got := f.receivedRequests(); !strings.HasSuffix(got, wantAll) {
		t.Errorf("got the requests\n%s\nwant the last one with %s, without the field all",
			got, wantAll)
	}
}

func TestCancel_Usage(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	for args, text := range map[*[]string]string{
		{"cancel"}: "say which: IDs, or flags, or --all",
		{"cancel", "--all", "--contract", "article"}:    "--all does not go with --contract",
		{"cancel", "AQ1", "--dry-run"}:                  "--dry-run does not go with IDs",
		{"cancel", "--key", "/a", "--key-prefix", "/b"}: "give --key or --key-prefix",
		{"cancel", "--contract", ""}:                    "--contract is empty",
		{"cancel", "--lane", "-1"}:                      "--lane must be 0 or more",
		{"cancel", "--from", "yesterday"}:               "--from is \"yesterday\"",
	} {
		f.runCommand(*args...).expectEnd(t, exitUsage, "", text)
	}

	if requests := f.receivedRequests(); requests != "" {
		t.Errorf("got the requests %s, want none", requests)
	}
}
