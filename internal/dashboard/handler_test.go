package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/audit"
	"weir/internal/dashboard"
	"weir/internal/dashboard/dashboardtest"
	"weir/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/dashboard"+path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	h.ServeHTTP(w, r)
	return w
}

func TestDashboard_Headers(t *testing.T) {
	t.Parallel()
	d := dashboardtest.NewBusy().Dashboard()
	for name, path := range dashboardtest.Pages() {
		w := get(d, path)
		want := http.StatusOK
		if name == "missing" {
			want = http.StatusNotFound
		}

		h := w.Header()
		if w.Code != want || h.Get("Content-Type") != "text/html; charset=utf-8" ||
			h.Get("Cache-Control") != "no-store" ||
			h.Get("Referrer-Policy") != "no-referrer" ||
			h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: got %d %v, want status %v, Content-Type \"text/html; charset=utf-8\", Cache-Control "+
				"no-store, Referrer-Policy no-referrer and X-Content-Type-Options nosniff", name,
				w.Code, h, want)
		}

		policy := h.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'",
			"base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'"} {
			if !strings.Contains(policy, part) || strings.Contains(policy, "unsafe") {
				t.Errorf("%s: got %s, want %q and no \"unsafe\"", name, policy, part)
			}
		}

		if elsewhere := regexp.MustCompile(`(?:src|href|action)="(?:https?:)?//[^"]*`).FindString(
			w.Body.String()); elsewhere != "" {
			t.Errorf("%s loads or links the other origin %s, want none", name, elsewhere)
		}
	}
}

// The page has the proof of sign-in of the person who opened it, and sends it with each change.
func TestDashboard_HasTheProofOfSignIn(t *testing.T) {
	t.Parallel()
	d := dashboardtest.NewBusy().Dashboard()
	if page := get(d, "").Body.String(); strings.Contains(page, "data-proof") {
		t.Error("got a proof, want none without sign-in")
	}

	d.ProofFor = func(r *http.Request) string { return `of "` + r.Header.Get("Person") + `"` }
	r := httptest.NewRequest(http.MethodGet, "/api/dashboard", http.NoBody)
	r.Header.Set("Person", "ada")
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)

	if page := w.Body.String(); !strings.Contains(page,
		`<body data-refresh="5" data-proof="of &#34;ada&#34;">`) {
		t.Errorf("got %.900s, want the proof of ada", page)
	}

	script := get(d, "/assets/app.js").Body.String()
	if !strings.Contains(script, `headers["`+audit.ProofHeader+`"] = document.body.dataset.proof`) {
		t.Error("the script does not send the proof")
	}
}

func TestDashboard_Assets(t *testing.T) {
	t.Parallel()
	d := dashboardtest.NewEmpty().Dashboard()
	page := get(d, "").Body.String()
	for _, asset := range []struct {
		address,
		kind string
	}{{`href="/api/dashboard(/assets/app\.css\?v=\w+)"`, "text/css"},
		{`src="/api/dashboard(/assets/app\.js\?v=\w+)"`, "text/javascript"}} {
		found := regexp.MustCompile(asset.address).FindStringSubmatch(page)
		if found == nil {
			t.Fatalf("the page lacks %s, want the address of the asset", asset.address)
		}

		w := get(d, found[1])
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), asset.kind) ||
			!strings.Contains(w.Header().Get("Cache-Control"), "immutable") || w.Body.Len() == 0 {
			t.Errorf("%s: got %d %v, want status 200, Content-Type to begin with %q, \"immutable\" in "+
				"Cache-Control and a body", found[1], w.Code, w.Header(), asset.kind)
		}
	}

	for _, path := range []string{"/assets/NOTICE", "/assets/..%2fhandler.go",
		"/assets/app.css.gz"} {
		if w := get(d, path); w.Code != 404 {
			t.Errorf("%s: got %d, want 404", path, w.Code)
		}
	}

	if w := get(d, "/assets/app.css?v=other"); w.Code != 200 ||
		strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
		t.Errorf("an asset of another version: got %d %v, want status 200 and no \"immutable\" in Cache-Control",
			w.Code,
			w.Header())
	}
}

func TestDashboard_WrongParameters(t *testing.T) {
	t.Parallel()
	d := dashboardtest.NewBusy().Dashboard()
	for path, status := range map[string]int{"/messages?lane=x": 400, "/messages?stage=bogus": 400,
		"/messages?contract=earlier": 200, "/messages?from=yesterday&to=x": 400,
		"/messages/nonsense":                        404,
		"/messages/" + dashboardtest.MessageID(999): 404, "/replays/none": 404,
		"/batches/none": 404, "/errors/none": 200,
		"?span=all&theme=%22": 200} {
		if w := get(d, path); w.Code != status || !strings.Contains(w.Body.String(), "</html>") {
			t.Errorf("%s: got %d, want status %v and \"</html>\" in body", path, w.Code, status)
		}
	}
}

// If Weir stopped counting early (Lane.Exact is false), the numbers of scheduled and retrying
// messages are lower bounds. Weir subtracts both from the number of waiting messages, so the number
// of queued messages is an upper bound.
func TestDashboard_CountsThatAreNotComplete(t *testing.T) {
	t.Parallel()
	f := dashboardtest.NewEmpty()
	f.Data.Report.Lanes = []wire.Lane{{Counts: wire.Counts{Accepted: 70, Waiting: 70},
		Scheduled: 50, Retrying: 5, Queued: 15}}
	body := get(f.Dashboard(), "").Body.String()
	for name, want := range map[string]string{"Scheduled": "≥ 50", "Retrying": "≥ 5",
		"Queued": "≤ 15"} {
		if !strings.Contains(body, `<td data-name="`+name+`" class="n">`+want+`</td>`) {
			t.Errorf("the page does not show the count %s as %s, want it to", name, want)
		}
	}
}

func TestDashboard_NamesMissingContracts(t *testing.T) {
	t.Parallel()
	body := get(dashboardtest.NewHeldUp().Dashboard(), "").Body.String()
	for _, want := range []string{"news-of-the-northern-desk &lt;b&gt;", "5 messages wait",
		"/messages?contract=news-of-the-northern-desk%20%3cb%3e"} {
		if !strings.Contains(body, want) ||
			strings.Count(body, "is missing from the settings") != 1 {
			t.Errorf("got the page\n%s\nwant %q in it, in one banner", body, want)
		}
	}
}

func TestDashboard_NamesBrakes(t *testing.T) {
	t.Parallel()
	body := get(dashboardtest.NewHeldUp().Dashboard(), "").Body.String()
	for _, want := range []string{"article", "422 ", "&lt;n&gt; must have a teaser",
		"5 messages wait"} {
		if !strings.Contains(body, want) ||
			strings.Count(body, "rejects the messages of the contract") != 1 {
			t.Errorf("got the page\n%s\nwant %q in it, in one banner", body, want)
		}
	}
}

// A message that waited because the CMS was away must say so. The attempts that failed meanwhile do
// not count, and have no entry in its story.
func TestDashboard_MessageShowsThePauseOfItsLane(t *testing.T) {
	t.Parallel()
	f := dashboardtest.NewBusy()
	f.Data.Uncounted = wire.Uncounted{Attempts: 5, Status: 503}
	const want = "meanwhile the CMS answered 503: 5 attempts of its lane did not count"
	for delay, isShown := range map[time.Duration]bool{23 * time.Second: true,
		200 * time.Millisecond: false} {
		m := dashboardtest.BusyMessage(2)
		m.AttemptLog[0].At = m.AcceptedAt.Add(delay)
		f.Data.Messages = []wire.MessageLine{m}
		if body := get(f.Dashboard(), "/messages/"+m.ID).Body.String(); strings.Contains(body, want) != isShown {
			t.Errorf("after a wait of %s: got\n%s\nwant %q in it: %t", delay, body, want, isShown)
		}
	}
}

// The page of a dead message shows the reason why Weir would refuse a replay without force. The
// page also shows the reason that an operator gave for a change of the message.
func TestDashboard_MessageNamesObstacleAndReason(t *testing.T) {
	t.Parallel()
	f := dashboardtest.NewBusy()
	f.Data.Obstacles = nil
	id := dashboardtest.MessageID(1)
	body := get(f.Dashboard(), "/messages/"+id).Body.String()
	if strings.Contains(body, `id="obstacle"`) {
		t.Error("got an obstacle for a message that can be replayed, want none")
	}

	f.Data.Obstacles = map[string]string{id: "a later message of its key was delivered: <b>"}
	f.Data.Changes = []dashboard.Change{{At: dashboardtest.Noon, Action: "cancel", Subject: id,
		Function: "write", Detail: `{"reason":"sent <twice>"}`}}
	body = get(f.Dashboard(), "/messages/"+id).Body.String()
	for _, want := range []string{"A replay needs Force.",
		"a later message of its key was delivered: &lt;b&gt;",
		"no key: <bdi>sent &lt;twice&gt;</bdi>"} {
		if !strings.Contains(body, want) {
			t.Errorf("got the page\n%s\nwant %q in it", body, want)
		}
	}
}

// The audit page says of a change that an erasure has removed parameters of it, and links the
// erased message.
func TestDashboard_AuditNamesTheErasure(t *testing.T) {
	t.Parallel()
	f := dashboardtest.NewBusy()
	id := dashboardtest.MessageID(1)
	f.Data.Changes = []dashboard.Change{{At: dashboardtest.Noon, Action: "edit", Function: "write",
		RedactedBy: []string{id}}}
	body := get(f.Dashboard(), "/audit").Body.String()
	want := "redacted by the erasure of <a class=\"id\" href=\"/api/dashboard/messages/" + id
	if !strings.Contains(body, want) {
		t.Errorf("got the page\n%s\nwant %q in it", body, want)
	}
}

// Weir groups similar errors, and masks the words in which these errors can differ. For each group,
// the page also shows one error without masks.
func TestDashboard_ShowsAnExampleOfEachError(t *testing.T) {
	t.Parallel()
	busy := dashboardtest.NewBusy()
	busy.Data.Clusters.Errors[0].Sample.Reason = "400 Bad Request: path /x is not allowed here"
	for _, page := range []string{"/errors", ""} {
		body := get(busy.Dashboard(), page).Body.String()
		if !strings.Contains(body,
			"such as <bdi>400 Bad Request: path /x is not allowed here</bdi>") {
			t.Errorf("page %q has no example of the first error, want one", page)
		}
	}
}

// The parameters of a download link are the filter of the page, the format of the file, and the key
// with which the operator opened the page.
func TestDashboard_LinksOfFiles(t *testing.T) {
	t.Parallel()
	busy := dashboardtest.NewBusy()
	d := busy.Dashboard()
	fingerprint := busy.Data.Clusters.Errors[0].Fingerprint
	at := slices.IndexFunc(busy.Data.Changes,
		func(c dashboard.Change) bool { return c.IsMessage() })
	subject := "subject=" + busy.Data.Changes[at].Subject
	for page, link := range map[string]string{
		"/?": "/api/lanes?", "/replays?": "/api/replays?", "/errors?": "/api/errors?limit=200&amp;",
		"/audit?":                 "/api/audit?",
		"/audit?" + subject + "&": "/api/audit?" + subject + "&amp;",
		"/errors/" + fingerprint + "?": "/api/messages?fingerprint=" + fingerprint +
			"&amp;stage=dead&amp;",
		"/messages?stage=dead&":          "/api/messages?stage=dead&amp;",
		"/schedules?continue=somewhere&": "/api/scheduled?",
	} {
		body := get(d, page+"code=s3cret").Body.String()
		for _, format := range []string{"csv", "json"} {
			want := map[string]bool{"code=s3cret": true, "format=" + format: true}
			path, query, _ := strings.Cut(link, "?")
			for part := range strings.SplitSeq(query, "&amp;") {
				if part != "" {
					want[part] = true
				}
			}

			if !hasDownload(body, path, want) {
				t.Errorf("%s: got no link to a %s file of %s with %v, want one", page, format,
					path, want)
			}
		}
	}
}

// hasDownload reports whether a page has a download link with this path and exactly these
// parameters.
func hasDownload(page, path string, parameters map[string]bool) bool {
	for _, found := range regexp.MustCompile(`href="([^"?]*)\?([^"]*)" download`).FindAllStringSubmatch(page, -1) {
		parts := strings.Split(found[2], "&amp;")
		if found[1] == path && len(parts) == len(parameters) &&
			!slices.ContainsFunc(parts, func(part string) bool { return !parameters[part] }) {
			return true
		}
	}

	return false
}

// The page tells the operator that a resume of all lanes does not resume a key that was paused on
// its own.
func TestDashboard_ResumeNamesRemainingPauses(t *testing.T) {
	t.Parallel()
	body := get(dashboardtest.NewBusy().Dashboard(), "/pauses").Body.String()
	if strings.Contains(body, "everything") ||
		!strings.Contains(body, "A key that was paused on its own stays paused") {
		t.Error("the page does not say that a paused key stays paused, want the sentence")
	}
}

func TestDashboard_AnUpdateLeavesOutTheBodyThatIsShown(t *testing.T) {
	t.Parallel()
	f := dashboardtest.NewBusy()
	f.Change(func(data *dashboardtest.Data) {
		for i := range data.Messages {
			if data.Messages[i].ID == dashboardtest.MessageID(5) {
				data.Messages[i].ErasedAt = dashboardtest.Noon
			}
		}
	})

	d := f.Dashboard()
	for path, bodies := range map[string]bool{
		"/messages/" + dashboardtest.MessageID(1):                      true,
		"/messages/" + dashboardtest.MessageID(1) + "?known=accepted":  false,
		"/messages/" + dashboardtest.MessageID(40) + "?known=accepted": true,
		// erased after the browser got the body
		"/messages/" + dashboardtest.MessageID(5) + "?known=accepted": true,
		"/messages/" + dashboardtest.MessageID(5) + "?known=erased":   false,
	} {
		if got := strings.Contains(get(d, path).Body.String(), `id="bodies"`); got != bodies {
			t.Errorf("%s: the page has the bodies: %v, want %v", path, got, bodies)
		}
	}
}

func TestDashboard_FurtherFiltersAndOrder(t *testing.T) {
	t.Parallel()
	h := dashboardtest.NewBusy().Dashboard()
	body := get(h, "/messages?keyPrefix=/news/politics&sort=-attempts").Body.String()
	for _, want := range []string{"/news/politics/1", `<details id="more-filters" open>`,
		`value="/news/politics"`, `<option value="-attempts" selected>`, "shown are sorted",
		`<th scope="col">desk</th><th scope="col">title</th>`,
		"Council votes on item 1 of the budget"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q, want it", want)
		}
	}

	if strings.Contains(body, "/news/sport") {
		t.Error("the page has a key below /news/sport, want only keys with the prefix /news/politics")
	}

	if body := get(h, "/messages").Body.String(); strings.Contains(body, "sorted") ||
		strings.Contains(body, `id="more-filters" open`) {
		t.Error("a search without further filters opens them, or calls its messages sorted; want neither")
	}
}

// The page of a batch shows the progress, the stages of the messages, and the problems of the
// parts. Only the page of an unfinished batch has a button to cancel the batch.
func TestDashboard_Batches(t *testing.T) {
	t.Parallel()
	f := dashboardtest.NewBusy()
	d := f.Dashboard()
	filing, filed, rejected := f.Data.Batches[0], f.Data.Batches[1], f.Data.Batches[2]
	for path, want := range map[string][]string{
		"/batches": {filing.ID, filed.ID, rejected.ID, "1\u202f200 of 2\u202f400"},
		"/batches/" + filing.ID: {"1\u202f200 of 2\u202f400", "delivered", "1\u202f100",
			"monday/feed.xml", "./title", "line 213", "Cancel the batch"},
		"/batches/" + filed.ID:               {"removed", "2\u202f390"},
		"/batches/" + rejected.ID:            {"1 of 2400 parts are invalid"},
		"/messages/" + f.Data.Messages[0].ID: {"part 17 of a batch", "/batches/" + filing.ID},
	} {
		w := get(d, path)
		for _, text := range want {
			if w.Code != 200 || !strings.Contains(w.Body.String(), text) {
				t.Errorf("%s: got %d without %q, want 200 with it", path, w.Code, text)
			}
		}
	}

	for _, b := range []wire.Batch{filed, rejected} {
		if strings.Contains(get(d, "/batches/"+b.ID).Body.String(), "Cancel the batch") {
			t.Errorf("the page of a batch in the state %s has a button to cancel the batch, want none", b.State)
		}
	}

	if body := get(dashboardtest.NewBroken().Dashboard(), "/batches").Body.String(); !strings.Contains(body,
		"could not be read") {
		t.Error("storage is away: got a list of batches, want a note that the batches could not be read")
	}
}
