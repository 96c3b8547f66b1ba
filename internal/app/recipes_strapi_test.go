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

// strapi is a fake CMS. It answers the recipe's requests as Strapi 5.54.0 does. Each document has a
// draft. A look-up without status=draft finds only published entries.
type strapi struct {
	liberties
	mu    sync.Mutex
	next  int                       // number of the newest document
	draft map[string]map[string]any // draft of each document, by documentId
	live  map[string]map[string]any // published entry of each document that has one, by documentId
}

const (
	tokenOfStrapi = "token-of-strapi"
	// strapiRace is the answer to a publish if another program publishes the same document at the
	// same time.
	strapiRace = `{"data":null,"error":{"status":400,"name":"ApplicationError","message":"A published entry with ` +
		`documentId \"brm97504ld5wn9v65o1mij46\" already exists for UID \"api::article.article\". ` +
		`This combination must be unique.","details":{}}}`
)

// newStrapi returns a CMS with one draft for each slug.
func newStrapi(slugs ...string) *strapi {
	s := &strapi{draft: map[string]map[string]any{}, live: map[string]map[string]any{}}
	for _, slug := range slugs {
		s.next++
		s.draft[fmt.Sprint("document", s.next)] = map[string]any{"slug": slug}
	}
	return s
}

func (s *strapi) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if r.Header.Get("Authorization") != "Bearer "+tokenOfStrapi {
		failStrapi(w, 401, "UnauthorizedError", "Missing or invalid credentials")
		return
	}

	id := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/articles"), "/")
	isDraft := r.URL.Query().Get("status") == "draft"
	switch {
	case r.Method == http.MethodGet:
		s.serveLookUp(w, r, isDraft)
	case r.Method == http.MethodDelete: // Strapi also answers 204 if the entry does not exist
		delete(s.draft, id)
		delete(s.live, id)
		w.WriteHeader(http.StatusNoContent)

	case r.Method != http.MethodPost && s.draft[id] == nil:
		failStrapi(w, 404, "NotFoundError", "Not Found")
	default:
		s.write(w, r, id, isDraft)
	}
}

func replyStrapi(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

func failStrapi(w http.ResponseWriter, status int, name, message string, fields ...string) {
	details, problems := map[string]any{}, []any{}
	for _, field := range fields {
		problems = append(problems,
			map[string]any{"path": []string{field}, "message": message, "name": name})
	}

	if len(fields) > 0 {
		details["errors"] = problems
	}

	if len(fields) > 1 {
		message = fmt.Sprintf("%d errors occurred", len(fields))
	}

	replyStrapi(w, status, map[string]any{"data": nil, "error": map[string]any{
		"status": status, "name": name, "message": message, "details": details}})
}

func (s *strapi) serveLookUp(w http.ResponseWriter, r *http.Request, isDraft bool) {
	entries := s.live
	if isDraft {
		entries = s.draft
	}

	found := []any{}
	for _, id := range slices.Sorted(maps.Keys(entries)) {
		if s.finds(entries[id]["slug"], r.URL.Query().Get("filters[slug][$eq]")) {
			found = append(found,
				map[string]any{"id": 1, "documentId": id, "slug": entries[id]["slug"]})
		}
	}

	replyStrapi(w, 200, map[string]any{"data": found,
		"meta": map[string]any{"pagination": map[string]any{"total": len(found)}}})
}

// write saves a draft, and publishes it if the request wants that. Strapi checks values and
// uniqueness only then.
func (s *strapi) write(w http.ResponseWriter, r *http.Request, id string, isDraft bool) {
	var body struct{ Data map[string]any }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Data == nil {
		failStrapi(w, 400, "ValidationError", `Missing "data" payload in the request body`)
		return
	}

	if !isDraft && body.Data["title"] == "refused" {
		failStrapi(w, 400, "ValidationError", "title must be at least 20 characters", "title")
		return
	}

	if taken := s.listTaken(id, body.Data); !isDraft && len(taken) > 0 {
		failStrapi(w, 400, "ValidationError", "This attribute must be unique", taken...)
		return
	}

	status := 200
	if r.Method == http.MethodPost {
		s.next++
		id, status = fmt.Sprint("document", s.next), 201
		body.Data["slug"] = s.storedSlug(body.Data["slug"])
	}

	s.draft[id] = body.Data
	if !isDraft {
		s.live[id] = maps.Clone(body.Data)
		s.recordPublished(body.Data["slug"])
	}

	replyStrapi(w, status, map[string]any{"data": map[string]any{"id": 9, "documentId": id, "slug": body.Data["slug"]}})
}

// listTaken returns the fields whose value another published entry has.
func (s *strapi) listTaken(id string, data map[string]any) (taken []string) {
	for _, field := range []string{"slug", "title"} {
		for other, entry := range s.live {
			if text, _ := data[field].(string); other != id && entry[field] != nil &&
				s.finds(entry[field], text) {
				taken = append(taken, field)
				break
			}
		}
	}

	return taken
}

func (s *strapi) listArticles() (states []string) {
	for id := range s.draft {
		states = append(states, nameState(s.live[id] != nil))
	}
	return states
}

func (s *strapi) snapshot() map[string]string {
	printed := printItems(s.draft)
	for id, entry := range s.live {
		printed[id] += fmt.Sprint(", published: ", entry)
	}
	return printed
}

func openStrapi(t *testing.T, cms *strapi, token string, faults ...fault) *recipe {
	t.Helper()
	return openRecipe(t, "strapi", &faultyCMS{Handler: cms, faults: faults},
		map[string]string{"STRAPI_URL": "", "STRAPI_TOKEN": token})
}

var strapiHarness = harness[*strapi]{
	newCMS: func(isThere bool) *strapi {
		if isThere {
			return newStrapi("harbour-opens")
		}
		return newStrapi()
	},
	open: func(t *testing.T, cms *strapi, faults ...fault) *recipe {
		t.Helper()
		return openStrapi(t, cms, tokenOfStrapi, faults...)
	},
	create:   "POST",
	noAPI:    "no collection of articles",
	toCreate: "find live create",
	ifNew:    "find live create update",
	ifThere:  "find update",
	removals: [2]string{"find remove", "find live"},
}

func TestRecipe_Strapi(t *testing.T) {
	t.Parallel()
	const away = `{"data":null,"error":{"status":404,"name":"NotFoundError","message":"Not Found","details":{}}}`
	strapiHarness.checkDeliveries(t, map[string]delivery{
		"PublishedMeanwhile": {
			true, []fault{{request: "PUT", status: 400, body: strapiRace}},
			"find update find update",
		},
		"NewAndPublishedMeanwhile": {
			false, []fault{{request: "PUT", status: 400, body: strapiRace}},
			"find live create update withdraw find live create update",
		},
		"RemovedMeanwhile": {
			true, []fault{{request: "PUT", status: 404, body: away}}, "find update find update",
		},
	}, func(t *testing.T, cms *strapi, _ bool) {
		t.Helper()
		want := map[string]any{"slug": "harbour-opens", "title": "The harbour opens",
			"body": "<p>From Monday on.</p>", "tags": []any{"harbour", "news"}}

		for id, entry := range cms.live {
			if fmt.Sprint(entry) != fmt.Sprint(want) ||
				fmt.Sprint(cms.draft[id]) != fmt.Sprint(want) {
				t.Errorf("got the entry %v and the draft %v, want both %v", entry,
					cms.draft[id], want)
			}
		}
	})
}

func TestRecipe_StrapiFailures(t *testing.T) {
	t.Parallel()
	strapiHarness.checkFailures(t, map[string]failure{
		"ErrorAfterCreate": {
			false, fault{request: "POST", acts: true, status: 500, body: `{"data":null}`},
			weir.OutcomeRetry, "", "find live create", "find update",
		},
		"PageOfHTMLForCreate": {
			false, fault{request: "POST", status: 200, body: pageOfHTML},
			weir.OutcomeRetry, "", "find live create", "find live create update",
		},
		"Forbidden": {
			false, fault{request: "POST", status: 403},
			weir.OutcomeUnavailable, "", "find live create", "find live create update",
		},
		"AnswerLostAfterPublish": {
			false, fault{request: "PUT", acts: true}, weir.OutcomeRetry, "",
			"find live create update", "find update",
		},
	})
}

func TestRecipe_StrapiRefusals(t *testing.T) {
	t.Parallel()
	titled := func(title string) string {
		return `<article slug="b" version="1"><title>` + title + `</title></article>`
	}
	taken := newStrapi("a")
	taken.live["document1"] = map[string]any{"slug": "a", "title": "A"}
	folded, twins := newStrapi("B"), newStrapi("b", "B")
	folded.isFound, twins.isFound = strings.EqualFold, strings.EqualFold
	twins.live["document2"] = map[string]any{"slug": "B"}
	for name, c := range map[string]struct {
		cms    *strapi
		token  string
		body   string
		want   weir.Outcome
		reason string
		steps  string
	}{
		"WrongToken": {newStrapi(), "another", titled("B"), weir.OutcomeUnavailable,
			"Missing or invalid", "find"},
		"WrongValue": {
			newStrapi(), tokenOfStrapi, titled("refused"), weir.OutcomeRejected,
			"title: title must be at least 20 characters", "find live create update withdraw",
		},
		"WrongValueOfAnUpdate": {
			newStrapi("b"), tokenOfStrapi, titled("refused"), weir.OutcomeRejected,
			"400 Bad Request: title must be at least 20 characters", "find update",
		},
		"AnotherUniqueField": {
			taken, tokenOfStrapi, titled("A"), weir.OutcomeRejected,
			"title: This attribute must be unique",
			"find live create update withdraw",
		},
		"TwiceThere": {newStrapi("b", "b"), tokenOfStrapi, titled("B"), weir.OutcomeRejected,
			"twice", "find"},
		"OtherCase": {
			folded, tokenOfStrapi, titled("X"), weir.OutcomeRejected,
			"Strapi's database takes B for b", "find",
		},
		"OtherCaseBeside": {
			twins, tokenOfStrapi, titled("X"), weir.OutcomeRejected,
			"takes B for b: remove one of the two",
			"find update",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := openStrapi(t, c.cms, c.token)
			before := c.cms.snapshot()
			checkResult(t, r.sendBody(c.body), c.want, c.reason, c.steps)
			if got := c.cms.snapshot(); !maps.Equal(got, before) {
				t.Errorf("got the entries %v, want %v as before", got, before)
			}
		})
	}
}

// The draft of a document can have another slug than its published entry. So the slug can be taken
// by an entry that no look-up of drafts finds.
func TestRecipe_StrapiRenamed(t *testing.T) {
	t.Parallel()
	cms := newStrapi()
	r := openStrapi(t, cms, tokenOfStrapi)
	article := r.readSample("article.xml")
	if got := r.sendBody(article); got.RememberedID != "document1" {
		t.Fatalf("got %+v, want document1 remembered", got)
	}

	cms.draft["document1"]["slug"] = "renamed"
	checkResult(t, r.sendBody(article), weir.OutcomeDelivered, "", "find live update")
	cms.draft["document1"]["slug"], cms.live["document1"]["slug"] = "renamed", "renamed"
	checkResult(t, r.sendRemembering(article, "document1"), weir.OutcomeDelivered, "",
		"find live update")
	checkOneArticle(t, cms)
	if cms.live["document1"]["slug"] != "harbour-opens" {
		t.Errorf("got the entry %v, want its slug back", cms.live["document1"])
	}

	clear(cms.draft)
	clear(cms.live)
	removed := r.sendRemembering(article, "document1")
	checkResult(t, removed, weir.OutcomeDelivered, "", "find live update find live create update")
	if !removed.IsForgotten || removed.RememberedID != "document2" {
		t.Errorf("got %+v, want the id of the removed document forgotten", removed)
	}
}
