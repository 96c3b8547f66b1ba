package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/internal/weir"
)

// itemService is a stand-in for Sitecore's ItemService. It answers as the documentation says
// (doc.sitecore.com: "The RESTful API for the ItemService"), and as public clients of the
// ItemService expect.
type itemService struct {
	liberties
	mu       sync.Mutex
	sessions int                       // number of sign-ins; only the newest session is valid
	items    map[string]map[string]any // fields of each item, by path
}

const itemServicePath = sitecoreHome + "/news/harbour-opens"

// newItemService returns a CMS with the two items above the articles. If isThere is set, the CMS
// also has harbour-opens.
func newItemService(isThere bool) *itemService {
	s := &itemService{items: map[string]map[string]any{sitecoreHome: {},
		sitecoreHome + "/news": {}}}
	if isThere {
		s.items[itemServicePath] = map[string]any{"Title": "Before", "Teaser": "Read this"}
	}
	return s
}

func (s *itemService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)

	if r.URL.Path == "/sitecore/api/ssc/auth/login" {
		if body["domain"] != "sitecore" || body["username"] != "weir" ||
			body["password"] != "password-of-sitecore" {
			w.WriteHeader(http.StatusForbidden)
			return
		}

		s.sessions++
		http.SetCookie(w, &http.Cookie{Name: ".AspNet.Cookies",
			Value: fmt.Sprint("session-", s.sessions), Path: "/"})
		return
	}

	cookie, err := r.Cookie(".AspNet.Cookies")
	if err != nil || cookie.Value != fmt.Sprint("session-", s.sessions) ||
		r.URL.Query().Get("database") != "master" {
		w.WriteHeader(http.StatusForbidden)
		return
	}

	id, _ := url.PathUnescape(strings.TrimPrefix(r.URL.EscapedPath(), "/sitecore/api/ssc/item"))
	at := s.findPath(r, strings.TrimPrefix(id, "/"))
	if at == "" {
		w.WriteHeader(http.StatusNotFound)
		return
	}

	switch r.Method {
	case http.MethodGet:
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_ = json.NewEncoder(w).Encode(map[string]any{"ItemID": idOfItem(at), "ItemPath": at})
	case http.MethodPost:
		s.create(w, at, body)
	case http.MethodPatch:
		for name, value := range body {
			s.items[at][name] = value
		}
		w.WriteHeader(http.StatusNoContent)

	case http.MethodDelete:
		delete(s.items, at)
		w.WriteHeader(http.StatusNoContent)
	}
}

// findPath returns the path of the item that a request names; "" = the CMS does not have the item.
func (s *itemService) findPath(r *http.Request, id string) string {
	for _, at := range slices.Sorted(maps.Keys(s.items)) {
		switch {
		case id == "" && s.finds(strings.TrimPrefix(at, sitecoreHome+"/"),
			strings.TrimPrefix(r.URL.Query().Get("path"), sitecoreHome+"/")),
			r.Method == http.MethodPost && at == "/"+id,
			r.Method != http.MethodPost && id != "" && idOfItem(at) == id:
			return at
		}
	}

	return ""
}

// idOfItem returns an item's id, which stands in the address of a request.
func idOfItem(at string) string { return strings.ReplaceAll(strings.TrimPrefix(at, "/"), "/", "~") }

func (s *itemService) create(w http.ResponseWriter, parent string, body map[string]any) {
	if strings.ContainsAny(fmt.Sprint(body["ItemName"]), "?<>|") {
		w.WriteHeader(http.StatusBadRequest)
		return
	}

	at := fmt.Sprint(parent, "/", body["ItemName"])
	if s.items[at] != nil { // Sitecore answers 500 if AllowDuplicateItemNamesOnSameLevel is false
		w.WriteHeader(http.StatusInternalServerError)
		return
	}

	delete(body, "ItemName")
	s.recordPublished(at)
	s.items[at] = body
	w.Header().Set("Location", "/sitecore/api/ssc/item/"+idOfItem(at)+"?database=master")
	w.WriteHeader(http.StatusCreated)
}

func (s *itemService) snapshot() map[string]string { return printItems(s.items) }

// listArticles leaves out the two items above the articles. The ItemService cannot publish an item,
// so each article counts as published.
func (s *itemService) listArticles() (states []string) {
	for range len(s.items) - 2 {
		states = append(states, nameState(true))
	}
	return states
}

func openItemService(t *testing.T, cms *itemService, password string, faults ...fault) *recipe {
	t.Helper()
	return openRecipe(t, "sitecore-itemservice", &faultyCMS{Handler: cms, faults: faults},
		map[string]string{
			"SITECORE_URL": "", "SITECORE_DOMAIN": "sitecore", "SITECORE_USER": "weir",
			"SITECORE_PASSWORD": password})
}

var itemServiceHarness = harness[*itemService]{
	newCMS: newItemService,
	open: func(t *testing.T, cms *itemService, faults ...fault) *recipe {
		t.Helper()
		return openItemService(t, cms, "password-of-sitecore", faults...)
	},
	create:   "POST /sitecore/api/ssc/item",
	noAPI:    "no ItemService",
	toCreate: "find parent create",
	ifNew:    "find parent create",
	ifThere:  "find update",
	removals: [2]string{"find remove", "find"},
}

func TestRecipe_SitecoreItemService(t *testing.T) {
	t.Parallel()
	itemServiceHarness.checkDeliveries(t, map[string]delivery{
		// A 403 can mean that the session has ended: one sign-in, and the same request once more.
		"ForbiddenOnce": {false, []fault{{request: itemServiceHarness.create, status: 403}},
			"find parent create"},
		"RemovedMeanwhile": {true, []fault{{request: "PATCH", status: 404}},
			"find update find update"},
		"ParentMovedMeanwhile": {
			false, []fault{{request: "POST /sitecore/api/ssc/item", status: 404}},
			"find parent create find parent create",
		},
		"SessionEnded": {true, []fault{{request: "PATCH", status: 401}}, "find update"},
	}, func(t *testing.T, cms *itemService, wasThere bool) {
		t.Helper()
		want := map[string]any{"Title": "The harbour opens", "Text": "<p>From Monday on.</p>"}
		if wasThere {
			want["Teaser"] = "Read this"
		} else {
			want["TemplateID"] = "76036F5E-CBCE-46D1-AF0A-4143F9B557AA"
		}

		if fmt.Sprint(cms.items[itemServicePath]) != fmt.Sprint(want) {
			t.Errorf("got the items %v, want %s with %v", cms.items, itemServicePath, want)
		}
	})
}

func TestRecipe_SitecoreItemServiceFailures(t *testing.T) {
	t.Parallel()
	const create = "POST /sitecore/api/ssc/item"
	itemServiceHarness.checkFailures(t, map[string]failure{
		"ErrorAfterCreate": {
			false, fault{request: create, acts: true, status: 500},
			weir.OutcomeRetry, "500", "find parent create", "find update",
		},
		"CreatedMeanwhile": {
			true, fault{request: "GET", status: 404},
			weir.OutcomeRetry, "500", "find parent create", "find update",
		},
		"PageOfHTMLForUpdate": {
			true, fault{request: "PATCH", status: 200, body: pageOfHTML},
			weir.OutcomeRetry, "200", "find update", "find update",
		},
	})
}

func TestRecipe_SitecoreItemServiceRefusals(t *testing.T) {
	t.Parallel()
	cms := newItemService(false)
	r := openItemService(t, cms, "another")
	checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeUnavailable,
		"sign-in: login: 403", "find")

	r = openItemService(t, cms, "password-of-sitecore")
	other := strings.ToUpper(itemServicePath[len(sitecoreHome):])
	cms.items[sitecoreHome+other], cms.isFound = map[string]any{}, strings.EqualFold
	checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeRejected,
		other+" for /news/harbour-opens: send that", "find")
	cms.isFound = nil
	delete(cms.items, sitecoreHome+other)
	orphan := `<article path="/sports/a" version="1"><title>A</title></article>`
	checkResult(t, r.sendBody(orphan), weir.OutcomeRetry,
		"the parent of /sports/a is not there yet", "find parent")
	refused := `<article path="/news/a|b" version="1"><title>A</title></article>`
	checkResult(t, r.sendBody(refused), weir.OutcomeRejected, "400", "find parent create")
	top := `<article path="/a" version="1"><title>A</title></article>`
	checkResult(t, r.sendBody(top), weir.OutcomeDelivered, "", "find parent create")
	if len(cms.items) != 3 || cms.items[sitecoreHome+"/a"] == nil {
		t.Errorf("got the items %v, want the two above the articles and the article /a", cms.items)
	}
}
