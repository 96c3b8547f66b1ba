package cli

import "testing"

func TestErase(t *testing.T) {
	t.Parallel()
	const first, second = "AQABL714SFvJDd7dAA", "AQABL714SFvJDd7dAB"
	f := newFakeServer(t)
	erased := `{"id":"` + first +
		`","stage":"dead","contract":"article","key":"sha256:00","lane":0,"sequence":1,` +
		`"attempts":1,"acceptedAt":"2026-01-08T12:00:00Z","erasedAt":"2026-01-09T12:00:00Z"}`
	f.answerJSON("POST /api/messages/"+first+"/erase", 200, erased)
	f.answerJSON("POST /api/messages/"+second+"/erase", 409,
		"the message is queued: cancel it first")
	f.runCommand("erase").expectEnd(t, exitUsage, "", "give messages' ids")
	f.runCommand("erase", first).expectEnd(t, exitOK,
		first+"  dead, erased at 2026-01-09 12:00:00Z\n", "")
	f.runCommand("erase", second, first, "--json").expectEnd(t, exitRefused, erased+"\n",
		"cancel it first")
}
