package e2e_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// signedIn has two headers: one that App Service Authentication adds for a signed-in person, and a
// function key.
var signedIn = []string{"X-MS-CLIENT-PRINCIPAL-NAME", "ada@example.org",
	"x-functions-key", "the-key"}

// If the platform checks sign-ins, Weir shows the person as the author of each change on a path
// that needs sign-in, also in the handler's log. The paths of single messages need none, because
// programs use them.
func TestAudit_NamesThePersonWhoSignedIn(t *testing.T) {
	s := newSystemIn(t, []string{"WEBSITE_AUTH_ENABLED=True"}, 1)
	s.checkAuthor("ada@example.org", "key ad44dc8e")
	s.awaitCondition("the log names the person", time.Minute,
		func() bool { return strings.Contains(s.output.String(), `"principal":"ada@example.org"`) })
	s.checkProof()
}

// dataProof matches the proof of sign-in in a page.
var dataProof = regexp.MustCompile(`data-proof="([^"]+)"`)

// checkProof cancels a message as the operator's page does, with the proof of the person who opened
// the page. It checks that the audit log names this person, although the path needs no sign-in.
func (s *system) checkProof() {
	s.t.Helper()
	page, _ := s.requestStatus(200, "GET", "/api/dashboard", "", signedIn...)
	proof := dataProof.FindStringSubmatch(page)
	if proof == nil {
		s.t.Fatalf("got the page %.900s, want one with a proof of sign-in", page)
	}

	id := s.postAccepted("/news/2", "Weir-Deliver-After", "PT1H")
	s.requestStatus(200, "POST", "/api/messages/"+id+"/cancel", "", "Weir-Signed-In", proof[1],
		"x-functions-key", "the-key")
	answer, _ := s.requestStatus(200, "GET", "/api/audit?subject="+id, "")
	if !strings.Contains(answer, `"principal":"ada@example.org"`) {
		s.t.Errorf("got %s, want the person who opened the page", answer)
	}
}

// Without sign-ins on the platform, any client can send the header with a person's name. So Weir
// ignores the header, and names the function key as the author.
func TestAudit_IgnoresAPersonThatTheClientNames(t *testing.T) {
	s := newSystem(t, 1)
	s.checkAuthor("key ad44dc8e", "key ad44dc8e")
	if strings.Contains(s.output.String(), "ada@example.org") {
		t.Errorf("the log has ada@example.org, want it ignored")
	}
}

// checkAuthor pauses an ordering key and cancels a message. It checks that Weir shows the wanted
// authors of the pause and of the cancellation, and that the audit log has the id of the function
// key.
func (s *system) checkAuthor(want, ofMessage string) {
	s.t.Helper()
	s.requestStatus(200, "POST", "/api/pause", `{"key":"/news/1","reason":"legal"}`, signedIn...)
	id := s.postAccepted("/news/1", "Weir-Deliver-After", "PT1H")
	s.requestStatus(200, "POST", "/api/messages/"+id+"/cancel?reason=sent+twice", "", signedIn...)

	for path, places := range map[string][]string{
		"/api/pauses":              {fmt.Sprintf(`"by":%q`, want)},
		"/api/lanes/0":             {fmt.Sprintf(`"by":%q`, want)},
		"/api/audit?subject=" + id: {`"keyId":"ad44dc8e"`, `"action":"cancel"`},
		"/api/dashboard/pauses":    {want},
		"/api/dashboard/messages/" +
			id: {"cancel, <time", ofMessage, "<bdi>sent twice</bdi>"},
		"/api/dashboard/audit?subject=" + id:   {"Only changes of", "ad44dc8e"},
		"/api/dashboard/audit?subject=nothing": {"Nothing was changed."},
	} {
		answer, _ := s.requestStatus(200, "GET", path, "")
		for _, place := range places {
			if !strings.Contains(answer, place) {
				s.t.Errorf("%s: got %s, want %s", path, answer, place)
			}
		}
	}

	if got := s.runByAPI("pauses"); got.code != 0 || !strings.Contains(got.stdout, want) {
		s.t.Errorf("weir pauses: got %+v, want %s", got, want)
	}
}
