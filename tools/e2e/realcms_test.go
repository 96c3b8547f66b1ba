package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/tools/realcms"
)

// realCMS is a CMS that a test started.
type realCMS interface {
	Posts(ctx context.Context, prefix string) ([]realcms.Post, error)
	StartWeb(ctx context.Context) error
	StopWeb() error
	Stop() error
}

// cmsAPI is an API of a CMS, with the recipe that uses it.
type cmsAPI struct {
	recipe   string // folder below recipes
	isCreate func(r *http.Request, body []byte) bool
	isUpdate func(r *http.Request, body []byte) bool
	// start starts the CMS. It returns the CMS's address, and a function that returns environment variables for the
	// recipe. These depend on the address by which Weir reaches the CMS, which is the address of the proxy.
	start func(ctx context.Context, log io.Writer) (_ realCMS, url string, variables func(url string) []string, _ error)
}

// byMethod recognizes requests by their method.
func byMethod(method string) func(*http.Request, []byte) bool {
	return func(r *http.Request, _ []byte) bool { return r.Method == method }
}

// byCall recognizes requests by the name of a call in their body.
func byCall(name string) func(*http.Request, []byte) bool {
	return func(_ *http.Request, body []byte) bool { return bytes.Contains(body, []byte(name)) }
}

// cmsRun is a race through Weir to a real CMS of the test's own, with a proxy between the two.
type cmsRun struct {
	*system
	api   cmsAPI
	race  realcms.Race
	cms   realCMS
	proxy *realcms.Proxy

	// faults has the function that chooses the proxy's treatment of each request.
	faults          atomic.Pointer[func(r *http.Request, body []byte) realcms.Fault]
	creates, writes atomic.Int64 // requests to the CMS; writes include creates

	mu  sync.Mutex
	ids map[string]bool // the ids of the accepted messages
}

// newCMSRun starts storage, the CMS, the proxy and Weir. settings has replacements in the recipe: an old text, its
// new text, and so on.
func newCMSRun(t *testing.T, api cmsAPI, race realcms.Race, instances int, settings ...string) *cmsRun {
	t.Helper()
	t.Parallel()
	w := &cmsRun{system: newStorage(t), api: api, race: race, ids: map[string]bool{}}
	w.setFaults(func(*http.Request, []byte) realcms.Fault { return realcms.Fault{} })
	cms, url, variables, err := api.start(t.Context(), w.output)
	if err != nil {
		t.Fatal(err)
	}
	w.cms = cms
	t.Cleanup(func() {
		if err := cms.Stop(); err != nil {
			t.Error(err)
		}
	})
	if w.proxy, err = realcms.StartProxy(url, w.treatRequest); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.proxy.Close() })
	text := readFile(t, filepath.Join("..", "..", "recipes", api.recipe, "weir.yaml"))
	// 15 s is the shortest lease. The lane of a killed holder stands still for about as long.
	w.app = w.stageAppWith("lease: 15s\n" + strings.NewReplacer(settings...).Replace(text))
	w.startStagedHost(variables(w.proxy.URL), []string{"--instances", fmt.Sprint(instances)})
	return w
}

// treatRequest counts a request, and returns its treatment.
func (w *cmsRun) treatRequest(r *http.Request, body []byte) realcms.Fault {
	if w.api.isCreate(r, body) {
		w.creates.Add(1)
		w.writes.Add(1)
	} else if w.api.isUpdate(r, body) {
		w.writes.Add(1)
	}
	return (*w.faults.Load())(r, body)
}

// setFaults sets the function that chooses the proxy's treatment of each request, as in realcms.StartProxy.
func (w *cmsRun) setFaults(choose func(r *http.Request, body []byte) realcms.Fault) {
	w.faults.Store(&choose)
}

// postUntilAccepted posts a version until Weir accepts it, as an upstream does.
func (w *cmsRun) postUntilAccepted(ctx context.Context, slug string, version int) error {
	for {
		id, err := w.postOnce(ctx, slug, version)
		if err == nil {
			w.mu.Lock()
			w.ids[id] = true
			w.mu.Unlock()
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (w *cmsRun) postOnce(ctx context.Context, slug string, version int) (id string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.weir+"/api/messages",
		strings.NewReader(realcms.ArticleOf(slug, version)))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/xml")
	req.Header.Set("Idempotency-Key", keyOf(slug, version))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusAccepted {
		return "", fmt.Errorf("got %s", resp.Status)
	}
	location := resp.Header.Get("Location")
	return location[strings.LastIndex(location, "/")+1:], nil
}

// startRace sends the messages of the race from all clients. The channel gets the errors.
func (w *cmsRun) startRace() <-chan []error {
	sent := make(chan []error, 1)
	go func() { sent <- w.race.Run(w.t.Context(), w.postUntilAccepted) }()
	return sent
}

// awaitRace waits until each message of the race is final, and reports an error for each dead one.
func (w *cmsRun) awaitRace(sent <-chan []error) {
	w.t.Helper()
	for _, err := range <-sent {
		w.t.Error(err)
	}
	if len(w.ids) != w.race.Messages() {
		w.t.Errorf("%d messages were accepted, want %d", len(w.ids), w.race.Messages())
	}
	stages := map[string]int{}
	limit := time.Now().Add(4 * time.Minute)
	for id := range w.ids {
		var stage string
		w.awaitCondition(id+" is final", max(time.Until(limit), time.Second), func() bool {
			stage, _ = w.readStage(postedMessage{ID: id}) // an error means that the test has killed the handler
			return stage == "delivered" || stage == "superseded" || stage == "dead"
		})
		if stages[stage]++; stage == "dead" {
			w.t.Errorf("%+v is dead, want it delivered or superseded",
				getJSON[postedMessage](w.system, w.weir+"/api/messages/"+id))
		}
	}
	w.t.Logf("%v; the CMS got %d requests, %d of them writes", stages, w.proxy.Count(), w.writes.Load())
}

// checkPosts checks that the CMS has one post for each slug, with the newest version.
func (w *cmsRun) checkPosts() {
	w.t.Helper()
	posts, err := w.cms.Posts(w.t.Context(), w.race.Prefix)
	if err != nil {
		w.t.Fatal(err)
	}
	if got := realcms.TallyPosts(w.race, posts); !got.IsClean() {
		w.t.Errorf("got %+v, want one post of the newest version for each slug:\n%+v", got, posts)
	}
}

// testTwoKills kills the holder twice while it waits for an answer of the CMS. One kill comes after the CMS has
// created an item, the other after the first update by the CMS. Each race has a first update: if a create got no
// answer, the next holder sends the message once more, finds the item, and updates it. A race may have no second
// update: if Weir accepts all versions before the first kill, the newest version supersedes the others.
func testTwoKills(t *testing.T, api cmsAPI, race realcms.Race) {
	w := newCMSRun(t, api, race, 2)
	reached, killed := make(chan string), make(chan struct{})
	var creates, updates atomic.Int64
	w.setFaults(func(r *http.Request, body []byte) realcms.Fault {
		kind := ""
		switch {
		case api.isCreate(r, body) && creates.Add(1) == 4:
			kind = "create"
		case api.isUpdate(r, body) && updates.Add(1) == 1:
			kind = "update"
		default:
			return realcms.Fault{}
		}
		return realcms.Fault{Spoil: realcms.SpoilLose, Then: func() {
			select {
			case reached <- kind:
				<-killed
			case <-t.Context().Done():
			}
		}}
	})
	sent := w.startRace()
	for range 2 {
		select {
		case kind := <-reached:
			t.Logf("the holder is killed after the %s", kind)
			w.killHolder()
			killed <- struct{}{}
		case <-time.After(3 * time.Minute):
			t.Fatalf("%d creates, %d updates, want a moment for a kill", creates.Load(), updates.Load())
		}
	}
	w.awaitRace(sent)
	w.checkPosts()
}

// testSpoiltAnswers loses answers to creates, loses or spoils answers to other requests, and restarts the CMS in the
// middle. No version supersedes another, so the CMS gets each version. The race should have one client, which posts
// the versions in order.
func testSpoiltAnswers(t *testing.T, api cmsAPI, race realcms.Race) {
	w := newCMSRun(t, api, race, 1, "supersede: true", "supersede: false", "delivery:\n",
		"delivery:\n  settle: 1s\n  backoff: { min: 100ms, max: 1s }\n")
	var requests atomic.Int64
	spoilt := make([]atomic.Int64, 4)
	w.setFaults(func(r *http.Request, body []byte) realcms.Fault {
		n := requests.Add(1)
		spoil := realcms.SpoilNone
		switch {
		case api.isCreate(r, body) && w.creates.Load()%3 == 1: // the first create and each third after it
			spoil = realcms.SpoilLose
		case n%9 == 0:
			spoil = []realcms.Spoil{realcms.SpoilHTML, realcms.SpoilCut, realcms.SpoilLose}[n/9%3]
		}
		spoilt[spoil].Add(1)
		return realcms.Fault{Spoil: spoil}
	})
	sent := w.startRace()
	w.awaitCondition("a third of the versions is written", 3*time.Minute,
		func() bool { return int(w.writes.Load()) >= race.Messages()/3 })
	if err := w.cms.StopWeb(); err != nil {
		t.Fatal(err)
	}
	before := requests.Load()
	w.awaitCondition("Weir notices", time.Minute, func() bool { return requests.Load() > before })
	if err := w.cms.StartWeb(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.awaitRace(sent)
	w.checkPosts()
	for spoil, name := range []string{realcms.SpoilLose: "lost", realcms.SpoilHTML: "HTML", realcms.SpoilCut: "cut"} {
		if name != "" && spoilt[spoil].Load() == 0 {
			t.Errorf("no answer was spoilt as %s, want some", name)
		}
	}
}
