package cli

import (
	"testing"
)

const cancelled1 = `{"selected":2,"cancelled":1,"asked":1,"tooLate":0,"to":"2026-01-08T12:00:00Z","complete":`

func TestCancel_Named(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answers("POST /api/messages/AQ1/cancel", 202, story1)
	f.answers("POST /api/messages/none/cancel", 404, "there is no such message")
	f.run("cancel", "AQ1").is(t, exitOK, "AQ1: the cancellation is asked for.\n", "")
	f.run("cancel", "AQ1", "none").is(t, exitNotFound, "asked for", "there is no such message")
}

func TestCancel_Matching(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t)
	f.answers("POST /api/cancellations", 202, cancelled1+`false,"continue":"t0"}`, cancelled1+`true}`)
	f.run("cancel", "--key-prefix", "/new/", "--stage", "queued", "--yes", "--reason", "one by one").
		is(t, exitOK, "2 messages: 1 cancelled, 1 asked of their lanes, 0 came too late.\n", "")
	want := `POST /api/cancellations {"filter":{"keyPrefix":"/new/","stage":"queued"},"dryRun":true}
POST /api/cancellations {"filter":{"keyPrefix":"/new/","stage":"queued"},"dryRun":true,"continue":"t0"}
POST /api/cancellations {"filter":{"keyPrefix":"/new/","stage":"queued","to":"2026-01-08T12:00:00Z"},"reason":"one by one"}`
	if got := f.requests(); got != want {
		t.Errorf("asked\n%s\nwant\n%s", got, want)
	}
	f.run("cancel", "--key", "/a", "--dry-run").is(t, exitOK, "2 messages would be cancelled.\n", "")
	f.run("cancel", "--key", "/a").is(t, exitUsage, "", "nobody can be asked here: add --yes")
	if lines := f.run("cancel", "--all", "--yes", "--json").lines(t); len(lines) != 1 || lines[0]["cancelled"] == nil {
		t.Errorf("got %v, want one line with cancelled", lines)
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
		f.run(*args...).is(t, exitUsage, "", text)
	}
	if asked := f.requests(); asked != "" {
		t.Errorf("got the requests %s, want none", asked)
	}
}
