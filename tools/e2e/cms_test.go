//go:build cms

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/tools/realcms"
)

// siteAPI is a CMS of make test-cms, with the recipe that Weir ships for it.
type siteAPI struct {
	cmsAPI
	// rejected returns a message that the contract accepts and the CMS does not.
	rejected    func(slug string) string
	hasCapitals bool // each slug begins with a capital letter
	// losesUpdates is true if the CMS reads an item, changes some fields and saves all of them,
	// without a lock. Then an edit by another program can bring back the version that it has read.
	losesUpdates bool
}

// byMethodAt recognizes requests by their method and a part of their path.
func byMethodAt(method, path string) func(*http.Request, []byte) bool {
	return func(r *http.Request, _ []byte) bool {
		return r.Method == method &&
			strings.Contains(r.URL.Path, path)
	}
}

var sites = map[string]siteAPI{
	"apostrophe": {cmsAPI: cmsAPI{recipe: "apostrophe",
		isCreate: byMethodAt(http.MethodPost, "/article"),
		isUpdate: byMethodAt(http.MethodPatch, "/article")}, rejected: withShortBody},
	"directus": {cmsAPI: cmsAPI{recipe: "directus", isCreate: byMethod(http.MethodPost),
		isUpdate: byMethod(http.MethodPatch)}, rejected: withLongSlug},
	"ghost": {cmsAPI: cmsAPI{recipe: "ghost", isCreate: byMethod(http.MethodPost),
		isUpdate: byMethod(http.MethodPut)}, rejected: withLongTag},
	"keystone": {cmsAPI: cmsAPI{recipe: "keystone", isCreate: byCall("createArticle"),
		isUpdate: byCall("updateArticle")}, rejected: withLongSlug},
	"mediawiki": {cmsAPI: cmsAPI{recipe: "mediawiki", isCreate: byCall("createonly=1"),
		isUpdate: byCall("nocreate=1"),
		article:  realcms.PageOf}, rejected: inOtherNamespace, hasCapitals: true},
	"payload": {cmsAPI: cmsAPI{recipe: "payload",
		isCreate: byMethodAt(http.MethodPost, "/articles"),
		isUpdate: byMethodAt(http.MethodPatch, "/articles")}, rejected: withLongTitle,
		losesUpdates: true},
	"strapi-locales": {cmsAPI: cmsAPI{recipe: "strapi-locales", isCreate: byMethod(http.MethodPost),
		isUpdate: byMethod(http.MethodPut), article: realcms.LocalizedArticleOf},
		rejected: withLongLocalizedTitle},
	"strapi-mariadb": {cmsAPI: cmsAPI{recipe: "strapi", isCreate: byMethod(http.MethodPost),
		isUpdate: byMethod(http.MethodPut)}, rejected: withLongTitle},
	"strapi-postgres": {cmsAPI: cmsAPI{recipe: "strapi", isCreate: byMethod(http.MethodPost),
		isUpdate: byMethod(http.MethodPut)}, rejected: withLongTitle},
}

func withLongTitle(slug string) string {
	return strings.Replace(realcms.ArticleOf(slug, 1), "<title>",
		"<title>"+strings.Repeat("long ", 30), 1)
}

func withLongLocalizedTitle(slug string) string {
	return strings.Replace(withLongTitle(slug), " version", ` lang="de" version`, 1)
}

func withLongSlug(slug string) string {
	return strings.Replace(realcms.ArticleOf(slug, 1), `" version`,
		strings.Repeat("-long", 60)+`" version`, 1)
}

func withShortBody(slug string) string {
	before, _, _ := strings.Cut(realcms.ArticleOf(slug, 1), "<body>")
	return before + "<body>x</body></article>"
}

func withLongTag(slug string) string {
	return strings.Replace(realcms.ArticleOf(slug, 1), "</article>",
		"<tag>"+strings.Repeat("long-", 50)+"</tag></article>", 1)
}

func inOtherNamespace(slug string) string { return realcms.PageOf("Talk:"+slug, 1) }

// siteTest is a CMS that runs, with the scenarios' view of it.
type siteTest struct {
	name string
	api  siteAPI
	site *realcms.Site
}

// scenarios are what each CMS goes through, one after another, because they kill the CMS.
var scenarios = []struct {
	name string
	run  func(t *testing.T, s siteTest)
}{
	{"Race", testRace},
	{"LostAnswers", testLostAnswers},
	{"CMSKilled", testCMSKilled},
	{"DatabaseKilled", testDatabaseKilled},
	{"DatabaseKilledQuiet", testDatabaseKilledQuiet},
	{"Pages", testPages},
	{"TokenEnds", testTokenEnds},
	{"Rejected", testRejected},
	{"HostileKeys", testHostileKeys},
	{"OtherWriter", testOtherWriter},
}

// TestCMS runs each CMS that the variable CMS names, or all of them, with Weir and the shipped
// recipe.
func TestCMS(t *testing.T) {
	names := strings.Fields(os.Getenv("CMS"))
	if len(names) == 0 {
		names = realcms.SiteNames()
	}

	for _, name := range names {
		t.Run(name, func(t *testing.T) { testSite(t, name) })
	}
}

func testSite(t *testing.T, name string) {
	api, isKnown := sites[name]
	if !isKnown {
		t.Fatalf("no CMS has the name %q: want one of %v", name, realcms.SiteNames())
	}

	output, began := &processLogs{}, time.Now()
	t.Cleanup(func() {
		if t.Failed() {
			text := output.String()
			t.Logf("the end of the CMS's log:\n%s", text[max(0, len(text)-6000):])
		}
	})

	site, err := realcms.StartSite(t.Context(), name, output)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := site.Stop(); err != nil {
			t.Error(err)
		}
	})

	t.Logf("%s is ready after %s", name, time.Since(began).Round(time.Second))

	for _, scenario := range scenarios {
		t.Run(scenario.name, func(t *testing.T) {
			// a failed scenario can have left it killed
			if err := site.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			scenario.run(t, siteTest{name, api, site})
		})
	}
}

// prefix returns the prefix of the slugs of a scenario.
func (s siteTest) prefix(name string) string {
	if s.api.hasCapitals {
		return strings.ToUpper(name[:1]) + name[1:]
	}
	return name
}

// newRun starts a Weir with four lanes, and short pauses, so that the test does not wait long for a
// lane that looks again.
func (s siteTest) newRun(t *testing.T, prefix string, versions, instances int,
	settings ...string) *cmsRun {
	t.Helper()
	race := realcms.Race{Prefix: s.prefix(prefix), Slugs: 20, Versions: versions, Clients: 16}
	w := newIdleRun(t, s.api.cmsAPI, race)

	if !strings.Contains(readFile(t,
		filepath.Join("..", "..", "recipes", s.api.recipe, "weir.yaml")), "\nlanes:") {
		settings = append([]string{"delivery:\n",
			"lanes: 4\ndelivery:\n  backoff: { min: 500ms, max: 5s }\n"}, settings...)
	}

	w.startWeir(s.site, s.site.URL, s.site.Variables, instances, settings...)

	return w
}

// settleLimit is the time within which all messages of a scenario are final after its last fault.
const settleLimit = 4 * time.Minute

// finish waits until all messages are final, and checks the items of the CMS. back is when the
// fault ended.
func (w *cmsRun) finish(sent <-chan []error, back time.Time) {
	w.t.Helper()
	w.awaitPosted(sent)
	w.awaitFinal(settleLimit, nil)
	w.t.Logf("all messages are final %s after the last fault", time.Since(back).Round(time.Second))
	w.checkPosts()
}

// startPacedRace is startRace with an interval between two posts, so that the posts do not end
// before a fault begins.
func (w *cmsRun) startPacedRace(interval time.Duration) <-chan []error {
	ticker := time.NewTicker(interval)
	w.t.Cleanup(ticker.Stop)
	sent := make(chan []error, 1)
	go func() {
		sent <- w.race.Run(w.t.Context(),
			func(ctx context.Context, slug string, version int) error {
				select {
				case <-ticker.C:
					return w.postUntilAccepted(ctx, slug, version)
				case <-ctx.Done():
					return ctx.Err()
				}
			})
	}()

	return sent
}

// letPass waits for the length of a fault.
func (w *cmsRun) letPass(length time.Duration) {
	select {
	case <-time.After(length):
	case <-w.t.Context().Done():
	}
}

// awaitWrites waits until the CMS has got so many writes more.
func (w *cmsRun) awaitWrites(n int64) {
	w.t.Helper()
	want := w.writes.Load() + n
	w.awaitOrShowLanes(fmt.Sprintf("%d writes more", n), time.Now().Add(settleLimit),
		func() bool { return w.writes.Load() >= want })
}

// testRace kills the handler twice while the CMS writes, and loses the answers.
func testRace(t *testing.T, s siteTest) {
	w := s.newRun(t, "race", 20, 2)
	w.killTwice()
}

// testLostAnswers loses answers, cuts some, replaces some by HTML, and restarts the CMS.
func testLostAnswers(t *testing.T, s siteTest) {
	w := s.newRun(t, "lost", 5, 1, "supersede: true", "supersede: false")
	w.race.Clients = 1 // the CMS gets each version, in order
	w.spoilAnswers()
}

func testCMSKilled(t *testing.T, s siteTest) {
	w := s.newRun(t, "away", 20, 1)
	sent := w.startPacedRace(50 * time.Millisecond)
	w.awaitWrites(10)
	if err := s.site.StopWeb(); err != nil {
		t.Fatal(err)
	}

	w.letPass(10 * time.Second)
	if err := s.site.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	w.finish(sent, time.Now())
}

func testDatabaseKilled(t *testing.T, s siteTest) {
	w := s.newRun(t, "busy", 20, 1)
	sent := w.startPacedRace(50 * time.Millisecond)
	w.awaitWrites(10)
	if err := s.site.KillDatabase(); err != nil {
		t.Fatal(err)
	}

	w.letPass(15 * time.Second)
	if err := s.site.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	w.finish(sent, time.Now())
}

// testDatabaseKilledQuiet has two messages wait while the database is away. That is too few for
// Weir to take their failures for an outage of the CMS.
func testDatabaseKilledQuiet(t *testing.T, s siteTest) {
	w := s.newRun(t, "quiet", 2, 1)
	w.race.Slugs = 2
	post := func(version int) {
		for n := range w.race.Slugs {
			if err := w.postUntilAccepted(t.Context(), w.race.Slug(n), version); err != nil {
				t.Fatal(err)
			}
		}
	}

	post(1)
	w.awaitFinal(settleLimit, nil)
	if err := s.site.KillDatabase(); err != nil {
		t.Fatal(err)
	}

	post(2)
	w.letPass(20 * time.Second)
	if err := s.site.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	back := time.Now()
	w.awaitFinal(settleLimit, nil)
	t.Logf("both messages are final %s after the database was back",
		time.Since(back).Round(time.Second))
	w.checkPosts()
}

// testPages has a web server before the CMS answer by pages of HTML: for three seconds to all
// requests, and for three more to writes alone.
func testPages(t *testing.T, s siteTest) {
	w := s.newRun(t, "pages", 20, 1)
	sent := w.startPacedRace(100 * time.Millisecond)
	w.awaitWrites(5)

	for _, status := range []int{http.StatusNotFound, http.StatusForbidden,
		http.StatusRequestEntityTooLarge,
		http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		for _, onlyWrites := range []bool{false, true} {
			before := w.pages.Load()
			w.setFaults(func(r *http.Request, body []byte) realcms.Fault {
				if onlyWrites && !s.api.isCreate(r, body) && !s.api.isUpdate(r, body) {
					return realcms.Fault{}
				}
				return realcms.Fault{Page: status}
			})

			w.letPass(3 * time.Second)
			w.awaitOrShowLanes("Weir meets a page", time.Now().Add(settleLimit),
				func() bool { return w.pages.Load() > before })
			w.setFaults(func(*http.Request, []byte) realcms.Fault { return realcms.Fault{} })
			w.letPass(time.Second)
		}
	}

	w.finish(sent, time.Now())
}

// testTokenEnds ends Weir's token, or its sessions, in mid-race.
func testTokenEnds(t *testing.T, s siteTest) {
	w := s.newRun(t, "token", 20, 1)
	sent := w.startPacedRace(50 * time.Millisecond)

	for range 2 {
		w.awaitWrites(5)
		if err := s.site.EndToken(t.Context()); err != nil {
			t.Fatal(err)
		}

		w.letPass(6 * time.Second)
		if err := s.site.RenewToken(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	w.finish(sent, time.Now())
}

// testRejected posts three messages that the CMS rejects among good ones. Only these are dead, and
// none of them leaves an item.
func testRejected(t *testing.T, s siteTest) {
	w := s.newRun(t, "good", 5, 1)
	sent := w.startPacedRace(50 * time.Millisecond)
	rejected := map[string]bool{}
	for n := range 3 {
		w.awaitWrites(2)
		id, err := w.postBodyUntilAccepted(t.Context(),
			s.api.rejected(fmt.Sprintf("%s-%d", s.prefix("bad"), n)), fmt.Sprintf("bad-%d", n))
		if err != nil {
			t.Fatal(err)
		}

		rejected[id] = true
	}

	w.awaitPosted(sent)
	w.awaitFinal(settleLimit, rejected)
	w.checkPosts()
	posts, err := s.site.Posts(t.Context(), s.prefix("bad"))
	if err != nil || len(posts) > 0 {
		t.Errorf("rejected messages: got the items %+v, error %v, want none", posts, err)
	}

	for id := range rejected {
		if m := getJSON[postedMessage](w.system, w.weir+"/api/messages/"+id); m.LastError == "" {
			t.Errorf("got %+v, want a reason", m)
		} else {
			t.Logf("the reason: %s", m.LastError)
		}
	}
}

// hostileKeys are keys that a CMS can take for one another, in the order in which they are sent.
var hostileKeys = []string{"x0", "x", "X", "x\u0301", "cafe", "Cafe", "caf\u00e9", "a", "b", "a b",
	"a,b", "a-b"}

// testHostileKeys posts two versions of each hostile key, and then deletes the keys that the CMS
// rejected. Each delivered key has an item of its own, and a rejected key has changed the item of
// no other.
func testHostileKeys(t *testing.T, s siteTest) {
	w := s.newRun(t, "hostile", 2, 1)
	stages := map[string]string{}
	for version := 1; version <= 2; version++ {
		for n, key := range hostileKeys {
			slug := s.prefix("hostile-") + key
			body, _ := w.articleOf(slug, version)
			id, err := w.postBodyUntilAccepted(t.Context(), body, fmt.Sprintf("%d@%d", n, version))
			if err != nil {
				t.Fatal(err)
			}

			w.awaitOrShowLanes(slug+" is final", time.Now().Add(time.Minute), func() bool {
				m := getJSON[postedMessage](w.system, w.weir+"/api/messages/"+id)
				if m.Stage == "dead" {
					t.Logf("%q version %d is dead: %s", key, version, m.LastError)
				}
				stages[key] = m.Stage
				return m.Stage == "delivered" || m.Stage == "dead"
			})
		}
	}

	s.checkHostile(t, stages)

	for n, key := range hostileKeys {
		if stages[key] != "dead" {
			continue
		}

		body := s.deleteOf(s.prefix("hostile-") + key)
		id, err := w.postBodyUntilAccepted(t.Context(), body, fmt.Sprintf("delete-%d", n))
		if err != nil {
			t.Fatal(err)
		}

		w.awaitOrShowLanes("the delete of "+key+" is final", time.Now().Add(time.Minute),
			func() bool {
				stage := getJSON[postedMessage](w.system, w.weir+"/api/messages/"+id).Stage
				return stage == "delivered" || stage == "dead"
			})
	}

	s.checkHostile(t, stages)
}

func (s siteTest) deleteOf(slug string) string {
	switch s.api.recipe {
	case "strapi-locales":
		return `<delete slug="` + slug + `" lang="en"/>`
	case "mediawiki":
		return "<delete><title>" + slug + "</title><summary>deleted</summary></delete>"
	}
	return `<delete slug="` + slug + `"/>`
}

// checkHostile checks that each delivered key has exactly one item, that this item has the key's
// title of version 2, and that there is no other item.
func (s siteTest) checkHostile(t *testing.T, stages map[string]string) {
	t.Helper()
	posts, err := s.site.Posts(t.Context(), s.prefix("hostile-"))
	if err != nil {
		t.Fatal(err)
	}

	titles := map[string][]string{}
	for _, p := range posts {
		titles[p.Slug] = append(titles[p.Slug], p.Title)
	}

	for key, stage := range stages {
		slug := s.prefix("hostile-") + key
		var want []string
		if stage == "delivered" {
			want = []string{realcms.TitleOf(slug, 2)}
		}

		if !slices.Equal(titles[slug], want) {
			t.Errorf("the key %q is %s: got items with the titles %q, want %q", key, stage,
				titles[slug], want)
		}

		delete(titles, slug)
	}

	if len(titles) > 0 {
		t.Errorf("got items of no key: %q", titles)
	}

	for _, key := range []string{"x", "x0", "a", "b"} {
		if stages[key] != "delivered" {
			t.Errorf("the plain key %q is %s, want it delivered", key, stages[key])
		}
	}
}

// testOtherWriter has another program change the same items meanwhile.
func testOtherWriter(t *testing.T, s siteTest) {
	w := s.newRun(t, "other", 20, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var edits, failures atomic.Int64
	var last atomic.Value
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ctx.Err() == nil; n++ {
			if err := s.site.Edit(ctx, w.race.Slug(n%w.race.Slugs)); err != nil {
				failures.Add(1)
				last.Store(err.Error())
			} else {
				edits.Add(1)
			}
		}
	}()

	sent := w.startPacedRace(50 * time.Millisecond)
	w.awaitPosted(sent)
	w.awaitFinal(settleLimit, nil)
	cancel()
	<-ended
	t.Logf("the other program made %d edits; %d failed, the last: %v", edits.Load(),
		failures.Load(), last.Load())
	if edits.Load() == 0 {
		t.Errorf("the other program made no edit: %v", last.Load())
	}

	if s.api.losesUpdates {
		w.postNextVersion()
		w.awaitFinal(settleLimit, nil)
	}

	w.checkPosts()
}

// postNextVersion posts one more version of each slug.
func (w *cmsRun) postNextVersion() {
	w.t.Helper()
	w.race.Versions++
	for n := range w.race.Slugs {
		if err := w.postUntilAccepted(w.t.Context(), w.race.Slug(n), w.race.Versions); err != nil {
			w.t.Fatal(err)
		}
	}
}
