package cli

import (
	"strings"
	"testing"
)

func TestDiscard_Named(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answerJSON("POST /api/messages/AQ1/discard", 202, story1)
	f.answerJSON("POST /api/messages/AQ2/discard", 200,
		strings.Replace(story1, `"stage":"dead"`, `"stage":"discarded"`, 1))
	f.answerJSON("POST /api/messages/none/discard", 409, "only a dead message can be discarded")
	f.runCommand("discard", "AQ1", "--yes").expectEnd(t, exitUsage, "", "give the --reason")
	f.runCommand("discard", "AQ1", "--reason", "the page is gone").expectEnd(t, exitUsage, "",
		"add --yes")
	if requests := f.receivedRequests(); requests != "" {
		t.Errorf("got the requests %s, want none without reason and confirmation", requests)
	}

	f.runCommand("discard", "AQ1", "AQ2", "--reason", "the page is gone", "--yes").expectEnd(t,
		exitOK, "AQ1: discard requested.\nAQ2 is discarded.\n", "")
	f.runCommand("discard", "none", "AQ2", "--reason", "old", "--yes").expectEnd(t, exitRefused,
		"AQ2 is discarded.\n", "only a dead message")
}

func TestDiscard_Matching(t *testing.T) {
	t.Parallel()
	const part = `{"selected":2,"asked":1,"tooLate":1,"to":"2026-01-08T12:00:00Z","complete":`
	f := newFakeServer(t)
	f.answerJSON("POST /api/discards", 202, part+`false,"continue":"t0"}`, part+`true}`)
	f.runCommand("discard", "--fingerprint", "8239b7e33e57", "--yes", "--reason", "old").
		expectEnd(t, exitOK, "2 messages: 1 requested, 1 came too late.\n", "")
	want := `POST /api/discards {"filter":{"fingerprint":"8239b7e33e57"},"dryRun":true}
POST /api/discards {"filter":{"fingerprint":"8239b7e33e57"},"dryRun":true,"continue":"t0"}
POST /api/discards {"filter":{"fingerprint":"8239b7e33e57","to":"2026-01-08T12:00:00Z"},"reason":"old"}`
	if got := f.receivedRequests(); got != want {
		t.Errorf("got the requests\n%s\nwant\n%s", got, want)
	}

	f.runCommand("discard", "--key", "/a", "--dry-run").expectEnd(t, exitOK,
		"2 messages would be discarded.\n", "")
	f.runCommand("discard", "--key", "/a", "--yes").expectEnd(t, exitUsage, "", "give the --reason")
	f.runCommand("discard", "--key", "/a", "--reason", "old").
		expectEnd(t, exitUsage, "", "there is no terminal to ask at: add --yes")

	if lines := f.runCommand("discard", "--all", "--yes", "--reason", "old", "--json").parseLines(t); len(lines) != 1 ||
		lines[0]["discarded"] == nil {
		t.Errorf("got %v, want one line with discarded", lines)
	}
}

func TestDiscard_Usage(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	for args, text := range map[*[]string]string{
		{"discard"}: "say which: IDs, or flags, or --all",
		{"discard", "--all", "--contract", "article"}:  "--all does not go with --contract",
		{"discard", "AQ1", "--dry-run"}:                "--dry-run does not go with IDs",
		{"discard", "--lane", "-1", "--reason", "old"}: "--lane must be 0 or more",
	} {
		f.runCommand(*args...).expectEnd(t, exitUsage, "", text)
	}

	if requests := f.receivedRequests(); requests != "" {
		t.Errorf("got the requests %s, want none", requests)
	}
}
