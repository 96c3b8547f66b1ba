package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"weir/internal/weir"
)

// strapi is a fake CMS. It answers the recipe's requests as Strapi 5.54.0 does. Each entry has a draft. A look-up
// without status=draft finds only published entries.
type strapi struct {
	mu        sync.Mutex
	next      int                       // number of the newest entry
	entries   map[string]map[string]any // by documentId
	published map[string]bool           // by documentId
}

const tokenOfStrapi = "token-of-strapi"

// newStrapi returns a CMS with one draft for each slug.
func newStrapi(slugs ...string) *strapi {
	s := &strapi{entries: map[string]map[string]any{}, published: map[string]bool{}}
	for _, slug := range slugs {
		s.next++
		s.entries[fmt.Sprint("document", s.next)] = map[string]any{"slug": slug}
	}
	return s
}

func (s *strapi) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := func(status int, value any) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(value)
	}
	fail := func(status int, name, message string, fields ...string) {
		details, problems := map[string]any{}, []any{}
		for _, field := range fields {
			problems = append(problems, map[string]any{"path": []string{field}, "message": message, "name": name})
		}
		if len(fields) > 0 {
			details["errors"] = problems
		}
		if len(fields) > 1 {
			message = fmt.Sprintf("%d errors occurred", len(fields))
		}
		reply(status, map[string]any{"data": nil, "error": map[string]any{
			"status": status, "name": name, "message": message, "details": details}})
	}
	if r.Header.Get("Authorization") != "Bearer "+tokenOfStrapi {
		fail(401, "UnauthorizedError", "Missing or invalid credentials")
		return
	}
	id := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/articles"), "/")
	isDraft := r.URL.Query().Get("status") == "draft"
	if r.Method == http.MethodGet {
		found := []any{}
		for id, entry := range s.entries {
			if entry["slug"] == r.URL.Query().Get("filters[slug][$eq]") && (isDraft || s.published[id]) {
				found = append(found, map[string]any{"id": 1, "documentId": id, "slug": entry["slug"]})
			}
		}
		reply(200, map[string]any{"data": found,
			"meta": map[string]any{"pagination": map[string]any{"total": len(found)}}})
		return
	}
	if r.Method == http.MethodDelete { // Strapi also answers 204 if the entry does not exist
		delete(s.entries, id)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if r.Method != http.MethodPost && s.entries[id] == nil {
		fail(404, "NotFoundError", "Not Found")
		return
	}
	var body struct{ Data map[string]any }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Data == nil {
		fail(400, "ValidationError", `Missing "data" payload in the request body`)
		return
	}
	if body.Data["title"] == "refused" {
		fail(400, "ValidationError", "title must be at least 20 characters", "title")
		return
	}
	for other, entry := range s.entries {
		var taken []string
		for _, field := range []string{"slug", "title"} { // Strapi does not check drafts for duplicates
			if !isDraft && other != id && entry[field] == body.Data[field] {
				taken = append(taken, field)
			}
		}
		if len(taken) > 0 {
			fail(400, "ValidationError", "This attribute must be unique", taken...)
			return
		}
	}
	status := 200
	if r.Method == http.MethodPost {
		s.next++
		id, status = fmt.Sprint("document", s.next), 201
	}
	s.entries[id], s.published[id] = body.Data, !isDraft
	reply(status, map[string]any{"data": map[string]any{"id": 9, "documentId": id, "slug": body.Data["slug"]}})
}

func (s *strapi) listArticles() (states []string) {
	for id := range s.entries {
		states = append(states, nameState(s.published[id]))
	}
	return states
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
	toCreate: "find create",
	ifNew:    "find create",
	ifThere:  "find update",
	removals: [2]string{"find remove", "find"},
}

func TestRecipe_Strapi(t *testing.T) {
	t.Parallel()
	const nothing = `{"data":[],"meta":{"pagination":{"total":0}}}`
	const away = `{"data":null,"error":{"status":404,"name":"NotFoundError","message":"Not Found","details":{}}}`
	strapiHarness.checkDeliveries(t, map[string]delivery{
		"Draft": {true, nil, "find update"},
		"CreatedMeanwhile": {
			true, []fault{{request: "GET", status: 200, body: nothing}}, "find create find update",
		},
		"RemovedMeanwhile": {
			true, []fault{{request: "PUT", status: 404, body: away}}, "find update find update",
		},
	}, func(t *testing.T, cms *strapi, _ bool) {
		t.Helper()
		want := map[string]any{"slug": "harbour-opens", "title": "The harbour opens",
			"body": "<p>From Monday on.</p>", "tags": []any{"harbour", "news"}}
		if fmt.Sprint(cms.entries["document1"]) != fmt.Sprint(want) {
			t.Errorf("got the entries %v, want document1 with %v", cms.entries, want)
		}
	})
}

func TestRecipe_StrapiFailures(t *testing.T) {
	t.Parallel()
	strapiHarness.checkFailures(t, map[string]failure{
		"ErrorAfterCreate": {
			false, fault{request: "POST", acts: true, status: 500, body: `{"data":null}`},
			weir.OutcomeRetry, "", "find create", "find update",
		},
		"PageOfHTMLForCreate": {
			false, fault{request: "POST", status: 200, body: pageOfHTML},
			weir.OutcomeRetry, "", "find create", "find create",
		},
		"Forbidden": {
			false, fault{request: "POST", status: 403},
			weir.OutcomeUnavailable, "", "find create", "find create",
		},
	})
}

func TestRecipe_StrapiRefusals(t *testing.T) {
	t.Parallel()
	titled := func(title string) string {
		return `<article slug="b" version="1"><title>` + title + `</title></article>`
	}
	taken := newStrapi("a")
	taken.entries["document1"]["title"] = "A"
	for name, c := range map[string]struct {
		cms    *strapi
		token  string
		body   string
		want   weir.Outcome
		reason string
		steps  string
	}{
		"WrongToken": {newStrapi(), "another", titled("B"), weir.OutcomeUnavailable, "Missing or invalid", "find"},
		"WrongValue": {
			newStrapi(), tokenOfStrapi, titled("refused"), weir.OutcomeRejected, "at least 20 characters",
			"find create",
		},
		"AnotherUniqueField": {taken, tokenOfStrapi, titled("A"), weir.OutcomeRejected, "must be unique",
			"find create"},
		"TwiceThere": {newStrapi("b", "b"), tokenOfStrapi, titled("B"), weir.OutcomeRejected, "twice", "find"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := openStrapi(t, c.cms, c.token)
			before := len(c.cms.entries)
			checkResult(t, r.sendBody(c.body), c.want, c.reason, c.steps)
			if len(c.cms.entries) != before {
				t.Errorf("got the entries %v, want %d entries as before", c.cms.entries, before)
			}
		})
	}
}
