package e2e_test

import (
	"bytes"
	"context"
	"errors"
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

// cmsAPI is an API of a CMS, with the recipe for this API.
type cmsAPI struct {
	recipe   string // folder below recipes
	isCreate func(r *http.Request, body []byte) bool
	isUpdate func(r *http.Request, body []byte) bool
	// start starts the CMS, and returns its address. The function "variables" returns the
	// environment variables that the recipe needs. Its argument is the address to which Weir sends
	// its requests: the address of the proxy.
	start func(ctx context.Context, log io.Writer) (_ realCMS, url string,
		variables func(url string) []string, _ error)
	// article returns the message of a version; nil = realcms.ArticleOf.
	article func(slug string, version int) string
}

func byMethod(method string) func(*http.Request, []byte) bool {
	return func(r *http.Request, _ []byte) bool { return r.Method == method }
}

// byCall recognizes requests whose body contains the name of a call.
func byCall(name string) func(*http.Request, []byte) bool {
	return func(_ *http.Request, body []byte) bool { return bytes.Contains(body, []byte(name)) }
}

// cmsRun is a run of one realcms.Race, a burst of messages from concurrent clients. Weir writes the
// messages to a real CMS that only this test uses. A proxy stands between Weir and the CMS.
type cmsRun struct {
	*system
	api   cmsAPI
	race  realcms.Race
	cms   realCMS
	proxy *realcms.Proxy

	// faults has the function that setFaults has set.
	faults          atomic.Pointer[func(r *http.Request, body []byte) realcms.Fault]
	creates, writes atomic.Int64 // requests to the CMS; writes include creates
	pages           atomic.Int64 // requests that the proxy answered by a page

	mu  sync.Mutex
	ids map[string]bool // the ids of the accepted messages
}

// newCMSRun starts storage, the CMS, the proxy and Weir. The argument "settings" has replacements
// in the recipe: old and new text in turn.
func newCMSRun(t *testing.T, api cmsAPI, race realcms.Race, instances int,
	settings ...string) *cmsRun {
	t.Helper()
	t.Parallel()
	w := newIdleRun(t, api, race)
	cms, url, variables, err := api.start(t.Context(), w.output)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := cms.Stop(); err != nil {
			t.Error(err)
		}
	})

	w.startWeir(cms, url, variables, instances, settings...)

	return w
}

// newIdleRun is newCMSRun without a CMS and without Weir.
func newIdleRun(t *testing.T, api cmsAPI, race realcms.Race) *cmsRun {
	t.Helper()
	w := &cmsRun{system: newStorage(t), api: api, race: race, ids: map[string]bool{}}
	w.setFaults(func(*http.Request, []byte) realcms.Fault { return realcms.Fault{} })
	return w
}

// startWeir starts the proxy and Weir for a CMS that runs.
func (w *cmsRun) startWeir(cms realCMS, url string, variables func(url string) []string,
	instances int, settings ...string) {
	w.t.Helper()
	w.cms = cms
	var err error
	if w.proxy, err = realcms.StartProxy(url, w.treatRequest); err != nil {
		w.t.Fatal(err)
	}

	w.t.Cleanup(func() { w.proxy.Close() })

	text := readFile(w.t, filepath.Join("..", "..", "recipes", w.api.recipe, "weir.yaml"))

	// The lane of a killed holder stalls until the lease has expired, and 15 s is the shortest
	// lease.
	w.app = w.stageAppWith("lease: 15s\n" + strings.NewReplacer(settings...).Replace(text))
	w.startStagedHost(variables(w.proxy.URL), []string{"--instances", fmt.Sprint(instances)})
}

func (w *cmsRun) treatRequest(r *http.Request, body []byte) realcms.Fault {
	if w.api.isCreate(r, body) {
		w.creates.Add(1)
		w.writes.Add(1)
	} else if w.api.isUpdate(r, body) {
		w.writes.Add(1)
	}

	fault := (*w.faults.Load())(r, body)
	if fault.Page != 0 {
		w.pages.Add(1)
	}

	return fault
}

// setFaults sets the function that tells the proxy how to treat each request. The proxy calls the
// function concurrently.
func (w *cmsRun) setFaults(choose func(r *http.Request, body []byte) realcms.Fault) {
	w.faults.Store(&choose)
}

// articleOf returns the message of a version, and the Idempotency-Key that goes with it.
func (w *cmsRun) articleOf(slug string, version int) (body, idempotencyKey string) {
	article := realcms.ArticleOf
	if w.api.article != nil {
		article = w.api.article
	}
	return article(slug, version), keyOf(slug, version)
}

// postUntilAccepted repeats the post of a version until Weir accepts it, as an upstream does.
func (w *cmsRun) postUntilAccepted(ctx context.Context, slug string, version int) error {
	body, idempotencyKey := w.articleOf(slug, version)
	_, err := w.postBodyUntilAccepted(ctx, body, idempotencyKey)
	return err
}

// postOnce posts a version once, and returns the message's id.
func (w *cmsRun) postOnce(ctx context.Context, slug string, version int) (id string, err error) {
	body, idempotencyKey := w.articleOf(slug, version)
	return w.postBodyOnce(ctx, body, idempotencyKey)
}

// errInvalid means that Weir will never accept a message.
var errInvalid = errors.New("the message is invalid")

// postBodyUntilAccepted repeats the post of a message until Weir accepts it, and returns its id. If
// the message is invalid, it gives up.
func (w *cmsRun) postBodyUntilAccepted(ctx context.Context, body,
	idempotencyKey string) (string, error) {
	for {
		id, err := w.postBodyOnce(ctx, body, idempotencyKey)
		if err == nil {
			w.mu.Lock()
			w.ids[id] = true
			w.mu.Unlock()
			return id, nil
		}

		if errors.Is(err, errInvalid) {
			return "", err
		}

		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (w *cmsRun) postBodyOnce(ctx context.Context, body, idempotencyKey string) (id string,
	err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.weir+"/api/messages",
		strings.NewReader(body))
	if err != nil {
		return "", err
	}

	req.Header.Set("Content-Type", "application/xml")
	req.Header.Set("Idempotency-Key", idempotencyKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}

	switch resp.StatusCode {
	case http.StatusAccepted:
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return "", fmt.Errorf("%w: got %s: %.300s", errInvalid, resp.Status, text)
	default:
		return "", fmt.Errorf("got %s: %.300s", resp.Status, text)
	}

	location := resp.Header.Get("Location")

	return location[strings.LastIndex(location, "/")+1:], nil
}

// startRace posts the messages of the race in the background. The channel gets the errors when all
// clients have ended.
func (w *cmsRun) startRace() <-chan []error {
	sent := make(chan []error, 1)
	go func() { sent <- w.race.Run(w.t.Context(), w.postUntilAccepted) }()
	return sent
}

// awaitRace waits until each message of the race is final. It reports an error for failed posts,
// and for each dead message.
func (w *cmsRun) awaitRace(sent <-chan []error) {
	w.t.Helper()
	w.awaitPosted(sent)
	w.awaitFinal(slowdown*4*time.Minute, nil)
}

// awaitPosted waits until the clients of the race have ended.
func (w *cmsRun) awaitPosted(sent <-chan []error) {
	w.t.Helper()
	for _, err := range <-sent {
		w.t.Error(err)
	}

	if len(w.ids) < w.race.Messages() {
		w.t.Errorf("%d messages were accepted, want at least %d", len(w.ids), w.race.Messages())
	}
}

// awaitFinal waits until each accepted message is final, and at most for the time "limit". It
// reports an error if another message is dead than the rejected ones, or if a rejected one is not.
func (w *cmsRun) awaitFinal(limit time.Duration, rejected map[string]bool) {
	w.t.Helper()
	stages, dead := map[string]int{}, []postedMessage{}
	deadline := time.Now().Add(limit)
	for id := range w.ids {
		var stage string
		w.awaitOrShowLanes(id+" is final", deadline, func() bool {
			// an error means that the test has killed the handler
			stage, _ = w.readStage(postedMessage{ID: id})
			return stage == "delivered" || stage == "superseded" || stage == "dead"
		})

		stages[stage]++
		if rejected[id] && stage != "dead" {
			w.t.Errorf("the message %s that the CMS rejects is %s, want it dead", id, stage)
		}

		if stage == "dead" && !rejected[id] {
			dead = append(dead, getJSON[postedMessage](w.system, w.weir+"/api/messages/"+id))
		}
	}

	w.t.Logf("%v; the CMS got %d requests, %d of them writes", stages, w.proxy.Count(),
		w.writes.Load())

	if len(dead) > 0 {
		w.t.Errorf("%d of %d messages are dead, want each delivered or superseded:", len(dead),
			len(w.ids))
		for _, m := range dead[:min(3, len(dead))] {
			w.t.Errorf("%+v", m)
		}
	}
}

// awaitOrShowLanes is awaitConditionUntil. Before it fails the test, it logs the lanes.
func (w *cmsRun) awaitOrShowLanes(condition string, deadline time.Time, holds func() bool) {
	w.t.Helper()
	shown := deadline.Add(-time.Second)
	w.awaitConditionUntil(condition, deadline, func() bool {
		if holds() {
			return true
		}

		if time.Now().After(shown) {
			shown = deadline.Add(time.Hour)
			w.t.Logf("the lanes: %s", readText(w.t, w.weir+"/api/lanes"))
		}

		return false
	})
}

// readText returns the body of an answer, or the error of the request.
func readText(t *testing.T, address string) string {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		return err.Error()
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}

	return string(text)
}

// checkPosts checks that the CMS has exactly one post for each slug, in the newest version.
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

// testTwoKills kills the holder twice: while the holder waits for the answer to the fourth create,
// and while it waits for the answer to the first update. Both times the CMS has done the write, and
// the proxy loses the answer. There is at least one update: after the kill at the create, the next
// holder finds the created item and updates it.
func testTwoKills(t *testing.T, api cmsAPI, race realcms.Race) {
	newCMSRun(t, api, race, 2).killTwice()
}

func (w *cmsRun) killTwice() {
	t, api := w.t, w.api
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

		case <-time.After(slowdown * 3 * time.Minute):
			t.Fatalf("%d creates, %d updates, want a moment for a kill", creates.Load(),
				updates.Load())
		}
	}

	w.awaitRace(sent)
	w.checkPosts()
}

// testSpoiltAnswers loses answers to creates, loses or spoils answers to other requests, and
// restarts the CMS's web server in the middle. No version supersedes another, so the CMS gets each
// version. The race should have only one client, because several clients can post the versions of a
// slug out of order.
func testSpoiltAnswers(t *testing.T, api cmsAPI, race realcms.Race) {
	newCMSRun(t, api, race, 1, "supersede: true", "supersede: false", "delivery:\n",
		"delivery:\n  settle: 1s\n  backoff: { min: 100ms, max: 1s }\n").spoilAnswers()
}

func (w *cmsRun) spoilAnswers() {
	t, api, race := w.t, w.api, w.race
	var requests atomic.Int64
	spoilt := make([]atomic.Int64, 4)
	w.setFaults(func(r *http.Request, body []byte) realcms.Fault {
		n := requests.Add(1)
		spoil := realcms.SpoilNone
		switch {
		case api.isCreate(r, body) && w.creates.Load()%3 == 1: // the 1st, 4th, 7th create and so on
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

	for spoil, name := range []string{realcms.SpoilLose: "lost", realcms.SpoilHTML: "HTML",
		realcms.SpoilCut: "cut"} {
		if name != "" && spoilt[spoil].Load() == 0 {
			t.Errorf("no answer was spoilt as %s, want some", name)
		}
	}
}
