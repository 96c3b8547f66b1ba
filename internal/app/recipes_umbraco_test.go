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

// umbraco is a fake CMS. It answers as Umbraco's Management API does. Its answers follow the
// documentation (docs.umbraco.com/umbraco-cms/reference/management-api) and the source code
// (github.com/umbraco/Umbraco-CMS: Controllers/Document and Controllers/Content of
// src/Umbraco.Cms.Api.Management).
type umbraco struct {
	liberties
	mu     sync.Mutex
	tokens int // number of issued tokens; only the newest token is valid
	// by id; a document maps aliases to values, and can have isTrashed
	documents map[string]map[string]any
	templates map[string]any  // template of a document's page, by the document's id
	published map[string]bool // by id
}

const (
	umbracoAPI = "/umbraco/management/api/v1"
	umbracoID  = "54a04905-ae35-56ea-894c-1132c3ea6bd9" // id of the document harbour-opens
)

func umbracoError(status int, operationStatus, title string) string {
	return fmt.Sprintf(`{"type":"Error","title":%q,"status":%d,"operationStatus":%q}`, title,
		status, operationStatus)
}

// newUmbraco returns a CMS. If isThere is set, the CMS has the document harbour-opens, with a
// teaser and a template that the editors have set.
func newUmbraco(isThere bool) *umbraco {
	u := &umbraco{documents: map[string]map[string]any{}, templates: map[string]any{},
		published: map[string]bool{}}
	if isThere {
		u.documents[umbracoID] = map[string]any{"title": "Before", "teaser": "Read this"}
		u.templates[umbracoID] = map[string]any{"id": "template-of-the-editors"}
	}
	return u
}

func (u *umbraco) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")

	if r.URL.Path == umbracoAPI+"/security/back-office/token" {
		u.serveToken(w, r)
		return
	}

	if r.Header.Get("Authorization") != fmt.Sprintf("Bearer token-number-%d", u.tokens) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}

	id, action, _ := strings.Cut(
		strings.Trim(strings.TrimPrefix(r.URL.Path, umbracoAPI+"/document"), "/"), "/")
	fail := func(status int, operationStatus, title string) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		fmt.Fprint(w, umbracoError(status, operationStatus, title))
	}

	if r.Method == http.MethodPost {
		u.create(w, r, fail)
		return
	}

	document, isThere := u.documents[id]
	switch {
	case !isThere:
		fail(404, "NotFound", "The document could not be found")
	case r.Method == http.MethodGet:
		values := []any{}
		for alias, value := range document {
			values = append(values,
				map[string]any{"alias": alias, "culture": nil, "segment": nil, "value": value})
		}

		_ = json.NewEncoder(w).Encode(map[string]any{"id": id,
			"isTrashed": document["isTrashed"] == true,
			"template":  u.templates[id], "values": values})

	case r.Method == http.MethodDelete:
		delete(u.documents, id)
	case document["isTrashed"] == true:
		fail(400, "InTrash", "Content is in the recycle bin")
	case action == "publish" && document["title"] == "refused":
		fail(400, "ContentInvalid", "Invalid document")
	case action == "publish":
		u.published[id] = true
		u.recordPublished(id)
	default:
		u.save(id, r)
	}
}

func (u *umbraco) serveToken(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("client_id") != "umbraco-back-office-weir" ||
		r.FormValue("client_secret") != "secret-of-client" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_client"}`)
		return
	}

	u.tokens++
	fmt.Fprintf(w, `{"access_token":"token-number-%d","token_type":"Bearer","expires_in":299}`,
		u.tokens)
}

func (u *umbraco) create(w http.ResponseWriter, r *http.Request, fail func(int, string, string)) {
	var body struct {
		ID                             string
		Parent, DocumentType, Template struct{ ID string }
		Values                         []struct {
			Alias string
			Value any
		}
	}

	_ = json.NewDecoder(r.Body).Decode(&body)
	_, isThere := u.documents[body.ID]
	switch {
	case body.Parent.ID != "id-of-parent" || body.Template.ID != "id-of-template":
		fail(404, "ParentNotFound", "The targeted content parent could not be found")
	case body.DocumentType.ID != "id-of-type":
		fail(404, "ContentTypeNotFound", "The requested content type could not be found")
	case isThere:
		fail(400, "DuplicateKey", "Invalid Id")
	default:
		document := map[string]any{}
		for _, v := range body.Values {
			document[v.Alias] = v.Value
		}

		u.documents[body.ID], u.templates[body.ID] = document,
			map[string]any{"id": body.Template.ID}
		w.Header().Set("Location", umbracoAPI+"/document/"+body.ID)
		w.WriteHeader(http.StatusCreated)
	}
}

// save replaces all values and the template, because Umbraco removes each value that an update
// leaves out.
func (u *umbraco) save(id string, r *http.Request) {
	var body struct {
		Template any
		Values   []struct {
			Alias string
			Value any
		}
	}

	_ = json.NewDecoder(r.Body).Decode(&body)
	u.documents[id], u.templates[id] = map[string]any{}, body.Template
	for _, v := range body.Values {
		u.documents[id][v.Alias] = v.Value
	}

	u.published[id] = false
}

func openUmbraco(t *testing.T, cms *umbraco, documentType string, faults ...fault) *recipe {
	t.Helper()
	return openRecipe(t, "umbraco", &faultyCMS{Handler: cms, faults: faults},
		map[string]string{"UMBRACO_URL": "",
			"UMBRACO_CLIENT_ID":     "umbraco-back-office-weir",
			"UMBRACO_CLIENT_SECRET": "secret-of-client",
			"UMBRACO_PARENT":        "id-of-parent", "UMBRACO_DOCUMENT_TYPE": documentType,
			"UMBRACO_TEMPLATE": "id-of-template"})
}

func (u *umbraco) snapshot() map[string]string { return printItems(u.documents) }

func (u *umbraco) listArticles() (states []string) {
	for id := range u.documents {
		states = append(states, nameState(u.published[id]))
	}
	return states
}

var umbracoHarness = harness[*umbraco]{
	newCMS: newUmbraco,
	open: func(t *testing.T, cms *umbraco, faults ...fault) *recipe {
		t.Helper()
		return openUmbraco(t, cms, "id-of-type", faults...)
	},
	create:   "POST " + umbracoAPI + "/document",
	noAPI:    "no Management API",
	toCreate: "find create",
	ifNew:    "find create publish",
	ifThere:  "find update publish",
	removals: [2]string{"remove", "remove"},
}

func TestRecipe_Umbraco(t *testing.T) {
	t.Parallel()
	away := umbracoError(404, "NotFound", "The document could not be found")
	umbracoHarness.checkDeliveries(t, map[string]delivery{
		// A 403 can mean that the session has ended: one sign-in, and the same request once more.
		"ForbiddenOnce": {false, []fault{{request: umbracoHarness.create, status: 403}},
			"find create publish"},
		"CreatedMeanwhile": {
			true, []fault{{request: "GET", status: 404, body: away}},
			"find create find update publish",
		},
		"RemovedMeanwhile": {
			true, []fault{{request: "PUT", status: 404, body: away}},
			"find update find update publish",
		},
		"ChangedMeanwhile": {
			true, []fault{
				{request: "PUT", status: 409,
					body: umbracoError(409, "ConcurrencyViolation", "Concurrency")},
			},
			"find update find update publish",
		},
		"ChangedBeforePublish": {
			false, []fault{
				{request: "PUT", status: 400,
					body: umbracoError(400, "ConcurrencyViolation", "Concurrency")},
			}, "find create publish find update publish",
		},
		"TokenEnded": {true, []fault{{request: "PUT", status: 401}}, "find update publish"},
	}, func(t *testing.T, cms *umbraco, wasThere bool) {
		t.Helper()
		want := map[string]any{"title": "The harbour opens", "body": "<p>From Monday on.</p>",
			"tags": []any{"harbour", "news"}}
		template := "map[id:id-of-template]"
		if wasThere {
			want["teaser"], template = "Read this", "map[id:template-of-the-editors]"
		}

		if got := fmt.Sprint(cms.templates[umbracoID]); got != template ||
			fmt.Sprint(cms.documents[umbracoID]) != fmt.Sprint(want) {
			t.Errorf("got the documents %v and the template %s, want %v and %s", cms.documents, got,
				want, template)
		}
	})
}

func TestRecipe_UmbracoFailures(t *testing.T) {
	t.Parallel()
	const create = "POST " + umbracoAPI + "/document"
	umbracoHarness.checkFailures(t, map[string]failure{
		"ErrorAfterCreate": {
			false, fault{request: create, acts: true, status: 500,
				body: umbracoError(500, "Unknown", "Unknown error")},
			weir.OutcomeRetry, "Unknown error", "find create", "find update publish",
		},
		"AnswerLostAfterPublish": {
			false, fault{request: "PUT", acts: true},
			weir.OutcomeRetry, "", "find create publish", "find update publish",
		},
		"PageOfHTMLForCreate": {
			false, fault{request: create, status: 200, body: pageOfHTML},
			weir.OutcomeRetry, "200", "find create", "find create publish",
		},
		"PageOfHTMLForPublish": {
			false, fault{request: "PUT", status: 200, body: pageOfHTML},
			weir.OutcomeRetry, "200", "find create publish", "find update publish",
		},
		"ParentNotPublished": {
			false, fault{request: "PUT", status: 400,
				body: umbracoError(400, "PathNotPublished", "Parent not published")},
			weir.OutcomeRetry, "the parent of harbour-opens is not published",
			"find create publish", "find update publish",
		},
		"VariesByCulture": {
			false, fault{request: create, status: 400,
				body: umbracoError(400, "ContentTypeCultureVarianceMismatch", "Mismatch")},
			weir.OutcomeUnavailable, "vary by culture", "find create", "find create publish",
		},
	})
}

func TestRecipe_UmbracoRefusals(t *testing.T) {
	t.Parallel()
	trashed := newUmbraco(true)
	trashed.documents[umbracoID]["isTrashed"] = true
	r := openUmbraco(t, trashed, "id-of-type")
	checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeRejected,
		"recycle bin", "find")

	cms := newUmbraco(false)
	r = openUmbraco(t, cms, "another type")
	checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeUnavailable,
		"does not have the parent", "find create")

	r = openUmbraco(t, cms, "id-of-type", fault{request: "DELETE", status: 404, body: pageOfHTML})
	checkResult(t, r.sendBody(r.readSample("delete.xml")), weir.OutcomeUnavailable,
		"no Management API", "remove")
	if len(cms.documents) != 0 {
		t.Errorf("got the documents %v, want none", cms.documents)
	}

	refused := `<article slug="a" version="1"><title>refused</title></article>`
	checkResult(t, r.sendBody(refused), weir.OutcomeRejected, "Invalid document",
		"find create publish")
}
