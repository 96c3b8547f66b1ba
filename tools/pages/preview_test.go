package pages_test

import (
	"strings"
	"testing"

	"weir/internal/dashboard/dashboardtest"
	"weir/internal/trial"
	"weir/tools/browser"
)

// showRequests is a script that opens the details of all requests on the page, and scrolls to the
// list of requests.
const showRequests = `(document.querySelectorAll('.requests details').forEach(d => d.open = true),
	document.querySelector('.requests').scrollIntoView(), true)`

// TestPreview checks that a message's page shows the requests that the message would make.
func TestPreview(t *testing.T) {
	t.Parallel()
	f := dashboardtest.NewBusy()
	single, refused := dashboardtest.MessageID(1), dashboardtest.MessageID(5)
	f.Data.Trials = map[string]trial.Trial{
		single: {Needs: "request", Verdict: trial.Open,
			Steps: []trial.Step{{Name: "request", Request: &trial.Request{
				Method: "POST", Address: "https://cms.example/content", Body: "<article/>"}}}},
		refused: {Verdict: trial.Dead, Reason: "find: address: {{ key }}: it is empty"},
	}

	b := openBrowser(t, f.Dashboard())
	for name, c := range map[string]struct {
		id   string
		want []string
		open int // number of requests whose details are open at first
	}{
		"Steps": {dashboardtest.MessageID(3),
			[]string{"find GET https://cms.example/wp-json/wp/v2/posts?slug=news-1",
				"X-Token: …", "create POST https://cms.example/wp-json/wp/v2/posts only if len(find.json) == 0",
				"update PUT https://cms.example/wp-json/wp/v2/posts/{{ find.json[0].id }}",
				"notify is left out, because this is false: has('./urgent')",
				"The sign-in adds its headers",
				"depend on the answer to find"}, 1},
		"Single":  {single, []string{"request POST https://cms.example/content", "<article/>"}, 1},
		"Refused": {refused, []string{"find: address: {{ key }}: it is empty"}, 0},
	} {
		b.Size(1360, 900)
		b.Visit("/api/dashboard/messages/" + c.id)
		text := browser.Eval[string](b,
			"document.querySelector('.requests').innerText.replace(/\\s+/g, ' ')")

		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: got %q, want %q", name, text, want)
			}
		}

		if strings.Contains(text, "Weir-Fence") ||
			name == "Single" && strings.Contains(text, "depend on the answer") {
			t.Errorf("%s: got %q, want no Weir-Fence, and no dependence on an answer if Single",
				name, text)
		}

		if got := browser.Eval[int](b, "document.querySelectorAll('.requests details[open]').length"); got != c.open {
			t.Errorf("%s: got %d open requests, want %d", name, got, c.open)
		}

		browser.Eval[bool](b, showRequests)
		savePicture(b, "preview-"+name)
	}

	b.Visit("/api/dashboard/messages/" + dashboardtest.MessageID(2))
	if browser.Eval[bool](b, "document.querySelector('.requests') != null") {
		t.Error("the page of a delivered message shows requests, want none: Weir sends no more for it")
	}

	b.Size(375, 800)
	b.Visit("/api/dashboard/messages/" + dashboardtest.MessageID(3) + "?theme=dark")
	browser.Eval[bool](b, showRequests)
	savePicture(b, "preview-phone")
	b.Clean()
}
