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

// payload answers the requests of the recipe as Payload 3.90 does. A document has one row, and its
// drafts have a table of versions. A look-up reads the rows, except with draft=true.
type payload struct {
	liberties
	mu   sync.Mutex
	next int                       // number of the newest document
	docs map[string]map[string]any // by id
}

const (
	payloadAway    = `{"errors":[{"message":"Not Found"}]}`
	payloadNoRoute = `{"message":"Route not found \"/api/articles\""}`
	payloadDenied  = `{"errors":[{"message":"You are not allowed to perform this action."}]}`
	payloadInvalid = `{"errors":[{"name":"ValidationError","data":{"collection":"articles",` +
		`"errors":[{"label":"%[1]s","message":"%[2]s","path":"%[3]s"}]},` +
		`"message":"The following field is invalid: %[1]s"}]}`
)

func newPayload(slugs ...string) *payload {
	p := &payload{docs: map[string]map[string]any{}}
	for _, slug := range slugs {
		p.next++
		p.docs[fmt.Sprint(p.next)] = map[string]any{"slug": slug, "_status": "draft"}
	}
	return p
}

func (p *payload) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	reply := func(status int, value any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(value)
	}

	fail := func(status int, text string) {
		w.WriteHeader(status)
		fmt.Fprint(w, text)
	}

	id := strings.Trim(strings.TrimPrefix(r.URL.Path, "/api/articles"), "/")
	switch {
	case r.Header.Get("Authorization") != "users API-Key key-of-payload":
		fail(403, payloadDenied)
	case r.Method == http.MethodGet:
		found := []any{}
		for _, id := range slices.Sorted(maps.Keys(p.docs)) {
			if p.finds(p.docs[id]["slug"], r.URL.Query().Get("where[slug][equals]")) {
				found = append(found,
					map[string]any{"id": json.Number(id), "slug": p.docs[id]["slug"]})
			}
		}

		reply(200, map[string]any{"docs": found, "totalDocs": len(found), "limit": 20, "page": 1})

	case r.Method != http.MethodPost && p.docs[id] == nil:
		fail(404, payloadAway)
	case r.Method == http.MethodDelete:
		doc := p.docs[id]
		delete(p.docs, id)
		reply(200, map[string]any{"message": "Deleted successfully.", "doc": doc})

	default:
		status, answer := p.write(id, r)
		reply(status, answer)
	}
}

func (p *payload) write(id string, r *http.Request) (status int, answer any) {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	refuse := func(label, message, path string) (int, any) {
		return 400, json.RawMessage(fmt.Sprintf(payloadInvalid, label, message, path))
	}
	status = 200
	if r.Method == http.MethodPost {
		p.next++
		id, status = fmt.Sprint(p.next), 201
		body["slug"] = p.storedSlug(body["slug"])
	}

	if body["title"] == "refused" {
		return refuse("Title",
			"This value must be shorter than the max length of 200 characters.", "title")
	}

	for other, doc := range p.docs {
		if slug, is := body["slug"].(string); is && other != id && p.finds(doc["slug"], slug) {
			return refuse("Slug", "Value must be unique", "slug")
		}
	}

	if p.docs[id] == nil {
		p.docs[id] = map[string]any{}
	}

	maps.Copy(p.docs[id], body)
	if p.docs[id]["_status"] == "published" {
		p.recordPublished(p.docs[id]["slug"])
	}

	return status, map[string]any{"message": "Article successfully created.",
		"doc": map[string]any{"id": json.Number(id), "slug": p.docs[id]["slug"],
			"_status": p.docs[id]["_status"]}}
}

func (p *payload) listArticles() (states []string) {
	for _, doc := range p.docs {
		states = append(states, nameState(doc["_status"] == "published"))
	}
	return states
}

func (p *payload) snapshot() map[string]string { return printItems(p.docs) }

func openPayload(t *testing.T, cms *payload, key string, faults ...fault) *recipe {
	t.Helper()
	return openRecipe(t, "payload", &faultyCMS{Handler: cms, faults: faults},
		map[string]string{"PAYLOAD_URL": "", "PAYLOAD_KEY": key})
}

var payloadHarness = harness[*payload]{
	newCMS: func(isThere bool) *payload {
		if isThere {
			return newPayload("harbour-opens")
		}
		return newPayload()
	},
	open: func(t *testing.T, cms *payload, faults ...fault) *recipe {
		t.Helper()
		return openPayload(t, cms, "key-of-payload", faults...)
	},
	create:   "POST",
	noAPI:    "no collection of articles",
	toCreate: "find create",
	ifNew:    "find create publish",
	ifThere:  "find update",
	removals: [2]string{"find remove", "find"},
}

func TestRecipe_Payload(t *testing.T) {
	t.Parallel()
	payloadHarness.checkDeliveries(t, map[string]delivery{
		"CreatedMeanwhile": {
			true, []fault{{request: "GET", status: 200, body: `{"docs":[]}`}},
			"find create find update",
		},
		"RemovedMeanwhile": {
			true, []fault{{request: "PATCH", status: 404, body: payloadAway}},
			"find update find update",
		},
		"RemovedBeforePublish": {
			false, []fault{{request: "PATCH", status: 404, body: payloadAway}},
			"find create publish find update",
		},
	}, func(t *testing.T, cms *payload, _ bool) {
		t.Helper()
		want := map[string]any{"slug": "harbour-opens", "title": "The harbour opens",
			"_status": "published",
			"body":    "<p>From Monday on.</p>", "tags": []any{"harbour", "news"}}

		for _, doc := range cms.docs {
			if fmt.Sprint(doc) != fmt.Sprint(want) {
				t.Errorf("got the document %v, want %v", doc, want)
			}
		}
	})
}

func TestRecipe_PayloadFailures(t *testing.T) {
	t.Parallel()
	payloadHarness.checkFailures(t, map[string]failure{
		"NoRoute": {
			false, fault{request: "GET", status: 404, body: payloadNoRoute},
			weir.OutcomeUnavailable, "no collection of articles", "find", "find create publish",
		},
		"AnswerLostAfterPublish": {
			false, fault{request: "PATCH", acts: true}, weir.OutcomeRetry, "",
			"find create publish", "find update",
		},
		"DatabaseAwayOrKeyUnknown": {
			false, fault{request: "GET", status: 403, body: payloadDenied},
			weir.OutcomeUnavailable, "not allowed to perform", "find", "find create publish",
		},
	})
}

func TestRecipe_PayloadRefusals(t *testing.T) {
	t.Parallel()
	titled := `<article slug="%s" version="1"><title>%s</title></article>`
	folded := newPayload("News")
	folded.isFound = strings.EqualFold
	r := openPayload(t, folded, "key-of-payload")
	checkResult(t, r.sendBody(fmt.Sprintf(titled, "news", "A")), weir.OutcomeRejected,
		"takes News for news", "find")

	cms := newPayload()
	r = openPayload(t, cms, "key-of-payload")
	checkResult(t, r.sendBody(fmt.Sprintf(titled, "a", "refused")), weir.OutcomeRejected,
		"create: 400: title: This value must be shorter than the max length", "find create")
	if len(cms.docs) != 0 {
		t.Errorf("got the documents %v, want none", cms.docs)
	}

	r = openPayload(t, cms, "another")
	checkResult(t, r.sendBody(fmt.Sprintf(titled, "a", "A")), weir.OutcomeUnavailable,
		"not allowed", "find")
}

// An editor can give an article another slug. The next message finds the article by its remembered
// id.
func TestRecipe_PayloadRenamed(t *testing.T) {
	t.Parallel()
	cms := newPayload()
	r := openPayload(t, cms, "key-of-payload")
	article := r.readSample("article.xml")
	if got := r.sendBody(article); got.RememberedID != "1" {
		t.Fatalf("got %+v, want the id 1 remembered", got)
	}

	cms.docs["1"]["slug"] = "renamed"
	checkResult(t, r.sendRemembering(article, "1"), weir.OutcomeDelivered, "", "find update")
	checkOneArticle(t, cms)
	if cms.docs["1"]["slug"] != "harbour-opens" {
		t.Errorf("got the document %v, want its slug back", cms.docs["1"])
	}

	clear(cms.docs)
	removed := r.sendRemembering(article, "1")
	checkResult(t, removed, weir.OutcomeDelivered, "", "find update find create publish")
	if !removed.IsForgotten || removed.RememberedID != "2" {
		t.Errorf("got %+v, want the id of the removed document forgotten", removed)
	}
}
