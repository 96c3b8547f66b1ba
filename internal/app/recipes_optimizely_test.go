package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"weir/internal/weir"
)

// optimizely is a stand-in for Optimizely. Its answers follow the documentation
// (docs.developers.optimizely.com, Content Management API v3.0) and the source of the API's
// controller.
type optimizely struct {
	liberties
	mu     sync.Mutex
	tokens int                       // number of issued tokens; only the newest token is valid
	pages  map[string]map[string]any // by GUID
}

const (
	optimizelyAPI = "/api/episerver/v3.0/contentmanagement"
	optimizelyID  = "54a04905-ae35-56ea-894c-1132c3ea6bd9" // GUID of the page harbour-opens
)

func optimizelyProblem(status int, detail string) string {
	return fmt.Sprintf(`{"title":%q,"status":%d,"detail":%q}`, http.StatusText(status),
		status, detail)
}

// newOptimizely returns a CMS. If isThere is set, the CMS has the page harbour-opens, with a teaser
// from an editor.
func newOptimizely(isThere bool) *optimizely {
	o := &optimizely{pages: map[string]map[string]any{}}
	if isThere {
		o.pages[optimizelyID] = map[string]any{"status": "Published",
			"title":  map[string]any{"value": "Before"},
			"teaser": map[string]any{"value": "Read this"}, "parentLink": map[string]any{"id": 5},
			"contentLink": map[string]any{"guidValue": optimizelyID}}
	}

	return o
}

func (o *optimizely) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	reply := func(status int, body string) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}

	if r.URL.Path == "/api/episerver/connect/token" {
		if r.FormValue("client_secret") != "secret-of-client" ||
			r.FormValue("scope") != "epi_content_management" {
			reply(http.StatusBadRequest, `{"error":"invalid_client"}`)
			return
		}

		o.tokens++
		reply(http.StatusOK, fmt.Sprintf(`{"access_token":"token-number-%d","token_type":"Bearer","expires_in":3600}`,
			o.tokens))
		return
	}

	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	id := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, optimizelyAPI), "/")
	page := o.pages[id]
	switch {
	case r.Header.Get("Authorization") != fmt.Sprintf("Bearer token-number-%d", o.tokens):
		reply(http.StatusUnauthorized, "")
	case r.Method == http.MethodPost:
		status, answer := o.createPage(body)
		reply(status, answer)
	case page == nil:
		reply(http.StatusNotFound, optimizelyProblem(http.StatusNotFound, ""))
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusOK)
		_ = json.NewEncoder(w).Encode(page)
	case r.Method == http.MethodPatch:
		maps.Copy(page, body)
		if page["status"] == "Published" {
			o.recordPublished(page["routeSegment"])
		}
		w.WriteHeader(http.StatusNoContent)

	default:
		if r.Header.Get("X-Epi-Permanent-Delete") == "true" {
			delete(o.pages, id)
		} else {
			page["parentLink"] = map[string]any{"id": 2}
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func (o *optimizely) createPage(body map[string]any) (status int, answer string) {
	link, _ := body["contentLink"].(map[string]any)
	id := fmt.Sprint(link["guidValue"])
	switch {
	case o.pages[id] != nil:
		return http.StatusConflict,
			optimizelyProblem(http.StatusConflict, "The provided content link is already existed.")
	case fmt.Sprint(body["contentType"]) != "[Page ArticlePage]",
		fmt.Sprint(body["parentLink"]) != "map[guidValue:guid-of-parent]":
		return http.StatusBadRequest,
			optimizelyProblem(http.StatusBadRequest, "The type is not allowed there.")
	}

	body["routeSegment"] = o.storedSlug(body["routeSegment"])
	o.pages[id] = body
	if body["status"] == "Published" {
		o.recordPublished(body["routeSegment"])
	}

	answered, _ := json.Marshal(body)

	return http.StatusCreated, string(answered)
}

func (o *optimizely) snapshot() map[string]string { return printItems(o.pages) }

// listArticles leaves out the pages in the trash.
func (o *optimizely) listArticles() (states []string) {
	for _, page := range o.pages {
		if fmt.Sprint(page["parentLink"]) != "map[id:2]" {
			states = append(states, nameState(page["status"] == "Published"))
		}
	}
	return states
}

func openOptimizely(t *testing.T, cms *optimizely, pageType string, faults ...fault) *recipe {
	t.Helper()
	return openRecipe(t, "optimizely", &faultyCMS{Handler: cms, faults: faults}, map[string]string{
		"OPTIMIZELY_URL": "", "OPTIMIZELY_CLIENT_ID": "weir",
		"OPTIMIZELY_CLIENT_SECRET": "secret-of-client",
		"OPTIMIZELY_PARENT":        "guid-of-parent", "OPTIMIZELY_PAGE_TYPE": pageType})
}

var optimizelyHarness = harness[*optimizely]{
	newCMS: newOptimizely,
	open: func(t *testing.T, cms *optimizely, faults ...fault) *recipe {
		t.Helper()
		return openOptimizely(t, cms, "ArticlePage", faults...)
	},
	create:   "POST " + optimizelyAPI,
	noAPI:    "no Content Management API",
	toCreate: "find create",
	ifNew:    "find create publish",
	ifThere:  "find update",
	removals: [2]string{"remove", "remove"},
}

func TestRecipe_Optimizely(t *testing.T) {
	t.Parallel()
	away := optimizelyProblem(http.StatusNotFound, "")
	optimizelyHarness.checkDeliveries(t, map[string]delivery{
		// A 403 can mean that the session has ended: one sign-in, and the same request once more.
		"ForbiddenOnce": {false, []fault{{request: optimizelyHarness.create, status: 403}},
			"find create publish"},
		"CreatedMeanwhile": {true, []fault{{request: "GET", status: 404, body: away}},
			"find create find update"},
		"RemovedMeanwhile": {true, []fault{{request: "PATCH", status: 404, body: away}},
			"find update find update"},
		"TokenEnded": {true, []fault{{request: "PATCH", status: 401}}, "find update"},
	}, func(t *testing.T, cms *optimizely, wasThere bool) {
		t.Helper()
		page := cms.pages[optimizelyID]
		got := fmt.Sprintln(page["name"], page["title"], page["mainBody"], page["tags"],
			page["teaser"])
		want := "The harbour opens map[value:The harbour opens] map[value:<p>From Monday on.</p>] " +
			"map[value:[harbour news]] <nil>\n"
		if wasThere {
			want = strings.Replace(want, "<nil>", "map[value:Read this]", 1)
		}

		if got != want {
			t.Errorf("got the page %s, want %s", got, want)
		}
	})
}

func TestRecipe_OptimizelyFailures(t *testing.T) {
	t.Parallel()
	const create = "POST " + optimizelyAPI
	optimizelyHarness.checkFailures(t, map[string]failure{
		"ErrorAfterCreate": {
			false, fault{request: create, acts: true, status: 500,
				body: optimizelyProblem(500, "An error")},
			weir.OutcomeRetry, "500", "find create", "find update",
		},
		"AnswerLostAfterUpdate": {
			true, fault{request: "PATCH", acts: true}, weir.OutcomeRetry, "", "find update",
			"find update",
		},
		"PageOfHTMLForCreate": {
			false, fault{request: create, status: 200, body: pageOfHTML},
			weir.OutcomeRetry, "200", "find create", "find create publish",
		},
		"PageOfHTMLForUpdate": {
			true, fault{request: "PATCH", status: 200, body: pageOfHTML},
			weir.OutcomeRetry, "200", "find update", "find update",
		},
		"NoAPIForUpdate": {
			true, fault{request: "PATCH", status: 404, body: pageOfHTML},
			weir.OutcomeUnavailable, "no Content Management API", "find update", "find update",
		},
		"Restarting": {
			false, fault{request: create, status: 503, body: pageOfHTML},
			weir.OutcomeUnavailable, "503", "find create", "find create publish",
		},
	})
}

func TestRecipe_OptimizelyRefusals(t *testing.T) {
	t.Parallel()
	trashed := newOptimizely(true)
	trashed.pages[optimizelyID]["parentLink"] = map[string]any{"id": 2}
	r := openOptimizely(t, trashed, "ArticlePage")
	checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeRejected,
		"to the trash", "find")

	cms := newOptimizely(false)
	r = openOptimizely(t, cms, "another type")
	checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeRejected,
		"not allowed there", "find create")

	r = openOptimizely(t, cms, "ArticlePage",
		fault{request: "DELETE", status: 404, body: pageOfHTML})
	checkResult(t, r.sendBody(r.readSample("delete.xml")), weir.OutcomeUnavailable,
		"no Content Management API", "remove")
}
