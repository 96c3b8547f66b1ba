package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/internal/weir"
)

// apostrophe answers the requests of the recipe as ApostropheCMS 4.32 does. Its filter by slug
// finds each slug that contains the text. If a slug is taken, Apostrophe adds a digit to the new
// one.
type apostrophe struct {
	liberties
	mu    sync.Mutex
	next  int                       // number of the newest article
	draft map[string]map[string]any // by aposDocId
	live  map[string]map[string]any // by aposDocId
	page  string                    // slug of a page; no article can have this slug
}

const apostropheAway = `{"message":"notfound","name":"notfound","data":{}}`

func newApostrophe(slugs ...string) *apostrophe {
	a := &apostrophe{draft: map[string]map[string]any{}, live: map[string]map[string]any{}}
	a.isFound = strings.Contains
	for _, slug := range slugs {
		a.next++
		a.draft[fmt.Sprint("doc", a.next)] = map[string]any{"slug": slug}
	}
	return a
}

func (a *apostrophe) take(l liberties) {
	a.rename = l.rename
	if l.isFound != nil {
		a.isFound = l.isFound
	}
}

func (a *apostrophe) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	reply := func(status int, value any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(value)
	}

	docs := a.live
	if r.URL.Query().Get("aposMode") == "draft" {
		docs = a.draft
	}

	id, action, _ := strings.Cut(strings.Trim(strings.TrimPrefix(r.URL.Path, "/api/v1/article"),
		"/"), "/")

	switch {
	case r.Header.Get("Authorization") != "ApiKey key-of-apostrophe":
		reply(403, map[string]any{"message": "forbidden", "name": "forbidden",
			"data": map[string]any{}})
	case id == "" && r.Method == http.MethodGet:
		found := []any{}
		for _, id := range slices.Sorted(maps.Keys(docs)) {
			if a.finds(docs[id]["slug"], r.URL.Query().Get("slug")) && len(found) < 50 {
				found = append(found, showDoc(id, docs[id]))
			}
		}

		reply(200, map[string]any{"pages": 1, "currentPage": 1, "results": found})

	case id == "":
		a.next++
		reply(200, a.save(fmt.Sprint("doc", a.next), r))
	case a.draft[id] == nil || docs[id] == nil && action == "":
		w.WriteHeader(404)
		fmt.Fprint(w, apostropheAway)
	case action == "publish":
		a.live[id] = maps.Clone(a.draft[id])
		a.recordPublished(a.draft[id]["slug"])
	case r.Method == http.MethodGet:
		reply(200, showDoc(id, docs[id]))
	case r.Method == http.MethodDelete:
		delete(a.draft, id)
		delete(a.live, id) // and answers 200 without a body
	default:
		reply(200, a.save(id, r))
	}
}

func showDoc(id string, doc map[string]any) map[string]any {
	return map[string]any{"_id": id + ":en:draft", "aposDocId": id, "slug": doc["slug"]}
}

// save changes the draft of an article, and makes its slug unique.
func (a *apostrophe) save(id string, r *http.Request) map[string]any {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	if a.draft[id] == nil {
		a.draft[id] = map[string]any{}
	}

	if slug := body["slug"]; slug != nil && slug != a.draft[id]["slug"] {
		body["slug"] = a.makeUnique(a.storedSlug(slug))
	}

	maps.Copy(a.draft[id], body)

	return showDoc(id, a.draft[id])
}

func (a *apostrophe) makeUnique(slug string) string {
	isTaken := slug == a.page
	for _, doc := range a.draft {
		isTaken = isTaken || doc["slug"] == slug
	}

	if isTaken {
		return slug + "7"
	}

	return slug
}

func (a *apostrophe) listArticles() (states []string) {
	for id := range a.draft {
		states = append(states, nameState(a.live[id] != nil))
	}
	return states
}

func (a *apostrophe) snapshot() map[string]string {
	printed := printItems(a.draft)
	for id, doc := range a.live {
		printed[id] += fmt.Sprint(", published: ", doc)
	}
	return printed
}

func openApostrophe(t *testing.T, cms *apostrophe, key string, faults ...fault) *recipe {
	t.Helper()
	return openRecipe(t, "apostrophe", &faultyCMS{Handler: cms, faults: faults},
		map[string]string{"APOSTROPHE_URL": "", "APOSTROPHE_KEY": key})
}

var apostropheHarness = harness[*apostrophe]{
	newCMS: func(isThere bool) *apostrophe {
		if isThere {
			return newApostrophe("harbour-opens")
		}
		return newApostrophe()
	},
	open: func(t *testing.T, cms *apostrophe, faults ...fault) *recipe {
		t.Helper()
		return openApostrophe(t, cms, "key-of-apostrophe", faults...)
	},
	create:   "POST",
	noAPI:    "no articles at this address",
	toCreate: "find live create",
	ifNew:    "find live create publish",
	ifThere:  "find update publish",
	removals: [2]string{"find remove", "find live"},
}

func TestRecipe_Apostrophe(t *testing.T) {
	t.Parallel()
	apostropheHarness.checkDeliveries(t, map[string]delivery{
		"RemovedMeanwhile": {
			true, []fault{{request: "PATCH", status: 404, body: apostropheAway}},
			"find update find update publish",
		},
		"RemovedBeforePublish": {
			false, []fault{{request: "POST /api/v1/article/doc1/publish", status: 404,
				body: apostropheAway}},
			"find live create publish find update publish",
		},
	}, func(t *testing.T, cms *apostrophe, _ bool) {
		t.Helper()
		want := map[string]any{"slug": "harbour-opens", "title": "The harbour opens",
			"body": "<p>From Monday on.</p>",
			"tags": []any{map[string]any{"name": "harbour"}, map[string]any{"name": "news"}}}
		if fmt.Sprint(cms.live["doc1"]) != fmt.Sprint(want) {
			t.Errorf("got the article %v, want %v", cms.live["doc1"], want)
		}
	})
}

func TestRecipe_ApostropheFailures(t *testing.T) {
	t.Parallel()
	apostropheHarness.checkFailures(t, map[string]failure{
		"AnswerLostAfterPublish": {
			false, fault{request: "POST /api/v1/article/doc1/publish", acts: true},
			weir.OutcomeRetry, "", "find live create publish", "find update publish",
		},
	})
}

// The filter by slug finds news-10 for news-1, too.
func TestRecipe_ApostropheContains(t *testing.T) {
	t.Parallel()
	cms := newApostrophe("news-10", "old-news-1")
	before := cms.snapshot()
	r := openApostrophe(t, cms, "key-of-apostrophe")
	article := `<article slug="news-1" version="1"><title>One</title></article>`
	checkResult(t, r.sendBody(article), weir.OutcomeDelivered, "", "find live create publish")
	checkResult(t, r.sendBody(article), weir.OutcomeDelivered, "", "find update publish")
	checkResult(t, r.sendBody(`<delete slug="news-1"/>`), weir.OutcomeDelivered, "", "find remove")
	if got := cms.snapshot(); !maps.Equal(got, before) {
		t.Errorf("got the articles %v, want %v as before", got, before)
	}

	for n := range 60 {
		doc := map[string]any{"slug": fmt.Sprint("news-1-", n)}
		cms.draft[fmt.Sprint("a", n)], cms.live[fmt.Sprint("a", n)] = doc, doc
	}

	first := r.sendBody(article) // not among the 50 that the look-up shows, and free
	checkResult(t, first, weir.OutcomeDelivered, "", "find live create publish")
	checkResult(t, r.sendBody(article), weir.OutcomeRejected,
		"Apostrophe made news-17 of the slug news-1: more than 50 articles contain it",
		"find live create undo")
	checkResult(t, r.sendRemembering(article, first.RememberedID), weir.OutcomeDelivered, "",
		"find live read update publish")
}

func TestRecipe_ApostropheRefusals(t *testing.T) {
	t.Parallel()
	cms := newApostrophe()
	cms.page = "about"
	r := openApostrophe(t, cms, "key-of-apostrophe")
	article := `<article slug="%s" version="1"><title>A</title></article>`
	for range 2 {
		checkResult(t, r.sendBody(fmt.Sprintf(article, "about")), weir.OutcomeRejected,
			"Apostrophe made about7 of the slug about: an article or a page has it",
			"find live create undo")
	}

	checkResult(t, r.sendBody(fmt.Sprintf(article, "Some Slug!")), weir.OutcomeRejected,
		"write some-slug", "find")
	if len(cms.draft) != 0 || len(cms.published) != 0 {
		t.Errorf("got the articles %v, and %v published, want none", cms.draft, cms.published)
	}

	r = openApostrophe(t, cms, "another")
	checkResult(t, r.sendBody(fmt.Sprintf(article, "a")), weir.OutcomeUnavailable, "403", "find")
}

// An editor can give an article another slug: in the draft alone, or in both.
func TestRecipe_ApostropheRenamed(t *testing.T) {
	t.Parallel()
	cms := newApostrophe()
	r := openApostrophe(t, cms, "key-of-apostrophe")
	article := r.readSample("article.xml")
	if got := r.sendBody(article); got.RememberedID != "doc1" {
		t.Fatalf("got %+v, want doc1 remembered", got)
	}

	cms.draft["doc1"]["slug"] = "renamed"
	checkResult(t, r.sendBody(article), weir.OutcomeDelivered, "", "find live update publish")
	cms.draft["doc1"]["slug"], cms.live["doc1"]["slug"] = "renamed", "renamed"
	checkResult(t, r.sendRemembering(article, "doc1"), weir.OutcomeDelivered, "",
		"find live read update publish")
	checkOneArticle(t, cms)

	cms.draft["doc1"]["slug"], cms.live["doc1"]["slug"], cms.page = "renamed", "renamed",
		"harbour-opens"
	checkResult(t, r.sendRemembering(article, "doc1"), weir.OutcomeRejected,
		"has given the article of harbour-opens", "find live read update restore")
	if cms.live["doc1"]["slug"] != "renamed" || cms.draft["doc1"]["slug"] != "renamed" {
		t.Errorf("got the article %v, want the editor's slug", cms.snapshot())
	}

	clear(cms.draft)
	clear(cms.live)
	cms.page = ""
	removed := r.sendRemembering(article, "doc1")
	checkResult(t, removed, weir.OutcomeDelivered, "", "find live read find live create publish")
	if !removed.IsForgotten || removed.RememberedID == "doc1" {
		t.Errorf("got %+v, want the id of the removed article forgotten", removed)
	}
}
