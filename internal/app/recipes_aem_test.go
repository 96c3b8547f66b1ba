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

// aem stands in for the Content Fragment Management API of AEM as a Cloud Service. It answers as
// Adobe's documentation (developer.adobe.com, experience-manager-apis) says, and as Adobe's clients
// expect.
type aem struct {
	liberties
	mu        sync.Mutex
	tokens    int                     // number of issued tokens; only the newest token is valid
	made      int                     // number of fragments that were created
	fragments map[string]*aemFragment // by id
	indexLag  int                     // value of aemFragment.hidden for a new fragment
	verdict   string                  // status of each path in the answer to a publish request
}

type aemFragment struct {
	ID          string           `json:"id"`
	Path        string           `json:"path"`
	Title       string           `json:"title"`
	Description string           `json:"description"`
	Status      string           `json:"status"`
	Fields      []map[string]any `json:"fields"`

	revision int
	hidden   int  // number of further look-ups by path that do not find the fragment
	isEnding bool // true = the next read finds the fragment unpublished
}

const (
	aemAPI    = "/adobe/sites/cf/fragments"
	aemFolder = "/content/dam/site/news"
)

func aemProblem(status int, detail string) string {
	return fmt.Sprintf(`{"status":%d,"title":%q,"detail":%q}`, status,
		http.StatusText(status), detail)
}

// newAEM returns a CMS. If isThere is set, the CMS has the fragment harbour-opens, with a teaser
// from an editor.
func newAEM(isThere bool) *aem {
	a := &aem{fragments: map[string]*aemFragment{}, verdict: "SUCCESS_TRIGGERED"}
	if isThere {
		a.made = 1
		a.fragments["id-1"] = &aemFragment{ID: "id-1", Path: aemFolder + "/harbour-opens",
			Title: "Before", Description: "Of the editors", Status: "PUBLISHED", revision: 1,
			Fields: []map[string]any{newAEMField("title", "Before"),
				newAEMField("teaser", "Read this")}}
	}

	return a
}

func newAEMField(name string, values ...any) map[string]any {
	return map[string]any{"name": name, "type": "text", "multiple": false, "values": values}
}

func (a *aem) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")

	if r.URL.Path == "/" { // in place of Adobe's token endpoint
		a.serveToken(w, r)
		return
	}

	id := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, aemAPI), "/")
	fragment := a.fragments[id]
	switch {
	case r.Header.Get("Authorization") != fmt.Sprintf("Bearer token-number-%d", a.tokens) ||
		r.Header.Get("X-Api-Key") != "weir":
		replyAEM(w, http.StatusUnauthorized, aemProblem(http.StatusUnauthorized, ""))
	case id == "publish":
		a.servePublish(w, r)
	case id == "" && r.Method == http.MethodPost:
		a.createFragment(w, r)
	case id == "":
		a.serveLookUp(w, r.FormValue("path"))
	case fragment == nil:
		replyAEM(w, http.StatusNotFound,
			aemProblem(http.StatusNotFound, "The fragment was not found."))
	case r.Method == http.MethodGet:
		if fragment.isEnding {
			fragment.Status, fragment.revision = "UNPUBLISHED", fragment.revision+1
		}
		replyFragment(w, http.StatusOK, fragment)

	case r.Header.Get("If-Match") == "":
		replyAEM(w, http.StatusPreconditionRequired,
			aemProblem(http.StatusPreconditionRequired, "If-Match is missing."))
	case r.Header.Get("If-Match") != fmt.Sprintf(`"%d"`, fragment.revision):
		replyAEM(w, http.StatusPreconditionFailed,
			aemProblem(http.StatusPreconditionFailed, "It was changed."))
	case r.Method == http.MethodDelete:
		delete(a.fragments, id)
		w.WriteHeader(http.StatusNoContent)
	default:
		var written aemFragment
		_ = json.NewDecoder(r.Body).Decode(&written)
		fragment.Title, fragment.Description, fragment.Fields = written.Title, written.Description,
			written.Fields
		fragment.Status, fragment.revision = "MODIFIED", fragment.revision+1
		replyFragment(w, http.StatusOK, fragment)
	}
}

func replyAEM(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprint(w, body)
}

func replyFragment(w http.ResponseWriter, status int, f *aemFragment) {
	w.Header().Set("ETag", fmt.Sprintf(`"%d"`, f.revision))
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(f)
}

func (a *aem) serveToken(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("client_secret") != "secret-of-client" ||
		r.FormValue("scope") != "openid,AdobeID" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":"invalid_client"}`)
		return
	}

	a.tokens++
	fmt.Fprintf(w, `{"access_token":"token-number-%d","token_type":"bearer","expires_in":86399}`,
		a.tokens)
}

// findFragment returns the fragment at a path; nil = there is none.
func (a *aem) findFragment(path string) *aemFragment {
	for _, f := range a.fragments {
		if f.Path == path {
			return f
		}
	}
	return nil
}

func (a *aem) serveLookUp(w http.ResponseWriter, path string) {
	items := []*aemFragment{}
	for _, id := range slices.Sorted(maps.Keys(a.fragments)) {
		f := a.fragments[id]
		switch {
		case !a.finds(strings.TrimPrefix(f.Path, aemFolder+"/"),
			strings.TrimPrefix(path, aemFolder+"/")):
		case f.hidden == 0:
			items = append(items, f)
		default:
			f.hidden--
		}
	}

	_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
}

func (a *aem) createFragment(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ParentPath, ModelID, Name, Title string
		Fields                           []map[string]any
	}

	_ = json.NewDecoder(r.Body).Decode(&body)
	path := body.ParentPath + "/" + a.storedSlug(body.Name)
	switch {
	case body.ParentPath != aemFolder || body.ModelID != "id-of-model":
		replyAEM(w, http.StatusNotFound,
			aemProblem(http.StatusNotFound, "The folder or the model was not found."))
	case a.findFragment(path) != nil:
		replyAEM(w, http.StatusConflict,
			aemProblem(http.StatusConflict, "A resource of this name is there."))
	default:
		a.made++
		f := &aemFragment{ID: fmt.Sprint("id-", a.made), Path: path, Title: body.Title,
			Fields: body.Fields, Status: "NEW", revision: 1, hidden: a.indexLag}
		a.fragments[f.ID] = f
		replyFragment(w, http.StatusCreated, f)
	}
}

// servePublish publishes fragments, or begins to unpublish them.
func (a *aem) servePublish(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Paths           []string
		WorkflowModelID string
	}

	_ = json.NewDecoder(r.Body).Decode(&body)
	items := []map[string]string{}
	for _, path := range body.Paths {
		f, verdict := a.findFragment(path), a.verdict
		switch {
		case f == nil:
			verdict = "ERROR_NOT_FOUND"
		case verdict != "SUCCESS_TRIGGERED":
		case strings.HasSuffix(body.WorkflowModelID, "scheduled_deactivation"):
			f.isEnding = true
		default:
			f.Status = "PUBLISHED"
			a.recordPublished(path)
		}

		items = append(items, map[string]string{"path": path, "status": verdict})
	}

	_ = json.NewEncoder(w).Encode(map[string]any{"workflowInstanceId": "/var/workflow/instances/1",
		"items": items})
}

func (a *aem) snapshot() map[string]string {
	printed := map[string]string{}
	for id, f := range a.fragments {
		printed[id] = fmt.Sprint(*f)
	}
	return printed
}

func (a *aem) listArticles() (states []string) {
	for _, f := range a.fragments {
		states = append(states, nameState(f.Status == "PUBLISHED"))
	}
	return states
}

func openAEM(t *testing.T, cms *aem, model string, faults ...fault) *recipe {
	t.Helper()
	return openRecipe(t, "aem", &faultyCMS{Handler: cms, faults: faults},
		map[string]string{"AEM_URL": "",
			"AEM_TOKEN_URL": "", "AEM_CLIENT_ID": "weir", "AEM_CLIENT_SECRET": "secret-of-client",
			"AEM_SCOPES": "openid,AdobeID", "AEM_FOLDER": aemFolder, "AEM_MODEL": model})
}

var aemHarness = harness[*aem]{
	newCMS: newAEM,
	open: func(t *testing.T, cms *aem, faults ...fault) *recipe {
		t.Helper()
		return openAEM(t, cms, "id-of-model", faults...)
	},
	create:   "POST " + aemAPI,
	noAPI:    "no Content Fragment API",
	toCreate: "find create",
	ifNew:    "find create publish",
	ifThere:  "find read update publish",
	removals: [2]string{"find read unpublish unpublished remove", "find"},
}

func TestRecipe_AEM(t *testing.T) {
	t.Parallel()
	aemHarness.checkDeliveries(t, map[string]delivery{
		"CreatedMeanwhile": {
			true, []fault{{request: "GET", status: 200, body: `{"items":[]}`}},
			"find create find read update publish",
		},
		"EditedMeanwhile": {
			true, []fault{{request: "PUT", status: 412, body: aemProblem(412, "It was changed.")}},
			"find read update read update publish",
		},
		"RemovedMeanwhile": {
			true, []fault{{request: "PUT", status: 404,
				body: aemProblem(404, "The fragment was not found.")}},
			"find read update find read update publish",
		},
		"TokenEnded": {true, []fault{{request: "PUT", status: 401}}, "find read update publish"},
	}, func(t *testing.T, cms *aem, wasThere bool) {
		t.Helper()
		f := cms.findFragment(aemFolder + "/harbour-opens")
		want := map[string]string{"title": "[The harbour opens]",
			"body": "[<p>From Monday on.</p>]", "tags": "[harbour news]"}
		description := ""
		if wasThere {
			want["teaser"], description = "[Read this]", "Of the editors"
		}

		got := map[string]string{}
		for _, field := range f.Fields {
			got[fmt.Sprint(field["name"])] = fmt.Sprint(field["values"])
		}

		if f.Title != "The harbour opens" || f.Description != description ||
			!maps.Equal(got, want) {
			t.Errorf("got %+v, want fields %v and the description %q", f, want, description)
		}
	})
}

func TestRecipe_AEMFailures(t *testing.T) {
	t.Parallel()
	const publish = "POST " + aemAPI + "/publish"
	aemHarness.checkFailures(t, map[string]failure{
		"ErrorAfterCreate": {
			false, fault{request: "POST " + aemAPI, acts: true, status: 500,
				body: aemProblem(500, "Repository")},
			weir.OutcomeRetry, "500", "find create", "find read update publish",
		},
		"AnswerLostAfterPublish": {
			false, fault{request: publish, acts: true},
			weir.OutcomeRetry, "", "find create publish", "find read update publish",
		},
		"PublishTooEarly": {
			false, fault{request: publish, status: 200,
				body: `{"items":[{"status":"ERROR_NOT_FOUND"}]}`},
			weir.OutcomeRetry, "ERROR_NOT_FOUND", "find create publish", "find read update publish",
		},
		"PageOfHTMLForCreate": {
			false, fault{request: "POST " + aemAPI, status: 200, body: pageOfHTML},
			weir.OutcomeRetry, "200", "find create", "find create publish",
		},
		"PageOfHTMLForUpdate": {
			true, fault{request: "PUT", status: 200, body: pageOfHTML},
			weir.OutcomeRetry, "page of HTML", "find read update", "find read update publish",
		},
		"Busy": {
			true, fault{request: "PUT", status: 503, header: "Retry-After: 3"},
			weir.OutcomeUnavailable, "503", "find read update", "find read update publish",
		},
	})
}

// If the look-up by path does not find a new fragment yet, the recipe must not create a second
// fragment. The test checks this with and without a remembered id.
func TestRecipe_AEMLookUpLags(t *testing.T) {
	t.Parallel()
	cms := newAEM(false)
	cms.indexLag = 3
	r := openAEM(t, cms, "id-of-model")
	article := r.readSample("article.xml")
	got := r.sendBody(article)
	checkResult(t, got, weir.OutcomeDelivered, "", "find create publish")
	if got.RememberedID != "id-1" {
		t.Fatalf("got the id %q, want id-1", got.RememberedID)
	}

	checkResult(t, r.sendRemembering(article, "id-1"), weir.OutcomeDelivered, "",
		"read update publish")
	checkResult(t, r.sendBody(article), weir.OutcomeRetry, "409",
		"find create find create find create")
	checkResult(t, r.sendBody(article), weir.OutcomeDelivered, "", "find read update publish")
	checkOneArticle(t, cms)

	removed := r.sendRemembering(article, "id-of-a-removed-fragment")
	checkResult(t, removed, weir.OutcomeDelivered, "", "read find read update publish")
	if !removed.IsForgotten || removed.RememberedID != "id-1" {
		t.Errorf("got %+v, want the old id forgotten and id-1 remembered", removed)
	}
}

func TestRecipe_AEMRefusals(t *testing.T) {
	t.Parallel()
	cms := newAEM(false)
	r := openAEM(t, cms, "another model")
	checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeUnavailable,
		"the folder or the model", "find create")

	for verdict, c := range map[string]struct {
		outcome weir.Outcome
		reason  string
	}{
		"ERROR_INVALID":   {weir.OutcomeRejected, "it is not valid"},
		"ERROR_FORBIDDEN": {weir.OutcomeUnavailable, "may not publish"},
	} {
		cms = newAEM(false)
		cms.verdict = verdict
		r = openAEM(t, cms, "id-of-model")
		checkResult(t, r.sendBody(r.readSample("article.xml")), c.outcome, c.reason,
			"find create publish")
		if got := cms.listArticles(); !slices.Equal(got, []string{"draft"}) {
			t.Errorf("%s: got %v, want one draft", verdict, got)
		}
	}
}
