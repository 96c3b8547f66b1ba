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

// drupal answers as the module JSON:API of Drupal's core does. The sources are
// core/modules/jsonapi/src/Controller/EntityResource.php, and the page
// www.drupal.org/docs/core-modules-and-themes/core-modules/jsonapi-module.
type drupal struct {
	liberties
	mu    sync.Mutex
	nodes map[string]map[string]any // attributes of each node, by UUID
}

const (
	drupalNodes = "/jsonapi/node/article"
	drupalID    = "54a04905-ae35-56ea-894c-1132c3ea6bd9" // UUID of the node harbour-opens
)

func drupalError(status int, detail string) string {
	text, _ := json.Marshal(map[string]any{"jsonapi": map[string]any{"version": "1.0"},
		"errors": []any{
			map[string]any{"title": http.StatusText(status), "status": fmt.Sprint(status),
				"detail": detail}}})
	return string(text)
}

func (d *drupal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.Header().Set("Content-Type", "application/vnd.api+json")
	fail := func(status int, detail string) {
		w.WriteHeader(status)
		fmt.Fprint(w, drupalError(status, detail))
	}

	id := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, drupalNodes), "/")
	user, password, _ := r.BasicAuth()
	switch signedIn := user == "weir" && password == "password-of-drupal"; {
	case r.Method != http.MethodGet && !signedIn:
		fail(401, "No authentication credentials provided.")
		return
	case r.Method != http.MethodPost && d.nodes[id] == nil:
		fail(404, "")
		return
	case r.Method == http.MethodDelete:
		delete(d.nodes, id)
		w.WriteHeader(http.StatusNoContent)
		return
	}

	status := 200
	if r.Method != http.MethodGet {
		if got := r.Header.Get("Content-Type"); got != "application/vnd.api+json" {
			fail(415, fmt.Sprintf("No route found that matches \"Content-Type: %s\"", got))
			return
		}

		var body struct {
			Data struct {
				ID         string
				Attributes map[string]any
			}
		}

		_ = json.NewDecoder(r.Body).Decode(&body)

		switch _, isThere := d.nodes[body.Data.ID]; {
		case r.Method == http.MethodPost && isThere:
			fail(409, "Conflict: Entity already exists.")
			return
		case r.Method == http.MethodPatch && body.Data.ID != id:
			fail(400, fmt.Sprintf("The selected entity (%s) does not match the ID in the payload (%s).", id,
				body.Data.ID))
			return

		case body.Data.Attributes["title"] == "refused":
			fail(422, "title: This value is too bad.")
			return
		case r.Method == http.MethodPost:
			status = 201
		}

		id = body.Data.ID
		d.nodes[id] = body.Data.Attributes
		d.recordPublished(id)
	}

	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(
		map[string]any{"data": map[string]any{"type": "node--article", "id": id}})
}

func (d *drupal) listArticles() (states []string) {
	for _, node := range d.nodes {
		states = append(states, nameState(node["status"] == true))
	}
	return states
}

func (d *drupal) snapshot() map[string]string { return printItems(d.nodes) }

// newDrupal returns a CMS. If isThere is set, the CMS has the node harbour-opens.
func newDrupal(isThere bool) *drupal {
	d := &drupal{nodes: map[string]map[string]any{}}
	if isThere {
		d.nodes[drupalID] = map[string]any{}
	}
	return d
}

func openDrupal(t *testing.T, cms *drupal, password string, faults ...fault) *recipe {
	t.Helper()
	return openRecipe(t, "drupal", &faultyCMS{Handler: cms, faults: faults},
		map[string]string{"DRUPAL_URL": "", "DRUPAL_USER": "weir", "DRUPAL_PASSWORD": password})
}

var drupalHarness = harness[*drupal]{
	newCMS: newDrupal,
	open: func(t *testing.T, cms *drupal, faults ...fault) *recipe {
		t.Helper()
		return openDrupal(t, cms, "password-of-drupal", faults...)
	},
	create:   "POST",
	noAPI:    "no JSON:API",
	toCreate: "find create",
	ifNew:    "find create",
	ifThere:  "find update",
	removals: [2]string{"remove", "remove"},
}

func TestRecipe_Drupal(t *testing.T) {
	t.Parallel()
	drupalHarness.checkDeliveries(t, map[string]delivery{
		"CreatedMeanwhile": {
			true, []fault{{request: "GET", status: 404, body: drupalError(404, "")}},
			"find create find update",
		},
		"RemovedMeanwhile": {
			true, []fault{{request: "PATCH", status: 404, body: drupalError(404, "")}},
			"find update find update",
		},
	}, func(t *testing.T, cms *drupal, _ bool) {
		t.Helper()
		want := map[string]any{"title": "The harbour opens", "status": true,
			"body": map[string]any{"value": "<p>From Monday on.</p>", "format": "basic_html"}}
		if fmt.Sprint(cms.nodes[drupalID]) != fmt.Sprint(want) {
			t.Errorf("got the nodes %v, want harbour-opens with %v", cms.nodes, want)
		}
	})
}

func TestRecipe_DrupalFailures(t *testing.T) {
	t.Parallel()
	drupalHarness.checkFailures(t, map[string]failure{
		"ErrorAfterCreate": {
			false, fault{request: "POST", acts: true, status: 500,
				body: drupalError(500, "The website")},
			weir.OutcomeRetry, "The website", "find create", "find update",
		},
		"ReadOnly": {
			false, fault{request: "POST", status: 405,
				body: drupalError(405, "only read operations")},
			weir.OutcomeUnavailable, "/admin/config/services/jsonapi", "find create", "find create",
		},
		"Maintenance": {
			false, fault{request: "GET", status: 503, body: pageOfHTML},
			weir.OutcomeUnavailable, "503", "find", "find create",
		},
		"EditorsDraft": {
			true, fault{request: "PATCH", status: 400, body: drupalError(400,
				"Updating a resource object that has a working copy is not yet supported.")},
			weir.OutcomeRetry, "an editor has a draft of harbour-opens", "find update",
			"find update",
		},
	})
}

func TestRecipe_DrupalRefusals(t *testing.T) {
	t.Parallel()
	cms := newDrupal(false)
	r := openDrupal(t, cms, "another")
	checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeUnavailable,
		"No authentication", "find create")

	r = openDrupal(t, cms, "password-of-drupal")
	refused := `<article slug="a" version="1"><title>refused</title></article>`
	checkResult(t, r.sendBody(refused), weir.OutcomeRejected, "title: This value is too bad.",
		"find create")

	r = openDrupal(t, cms, "password-of-drupal",
		fault{request: "DELETE", status: 404, body: pageOfHTML})
	checkResult(t, r.sendBody(r.readSample("delete.xml")), weir.OutcomeUnavailable,
		"no JSON:API", "remove")
	if len(cms.nodes) != 0 {
		t.Errorf("got the nodes %v, want none", cms.nodes)
	}
}
