package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"weir/internal/weir"
)

// contentful is a stand-in for Contentful. It answers as these pages of
// contentful.com/developers/docs/references say: errors, content-management-api/overview (versions,
// rate limits) and content-management-api/entries.
type contentful struct {
	liberties
	mu      sync.Mutex
	entries map[string]*contentfulEntry
}

type contentfulEntry struct {
	version, published, archived int
	fields, metadata             any
}

const (
	contentfulEntries = "/spaces/space/environments/master/entries/"
	contentfulID      = "54a04905-ae35-56ea-894c-1132c3ea6bd9" // id of the entry harbour-opens
	versionMismatch   = `{"sys":{"type":"Error","id":"VersionMismatch"},"message":"Version mismatch error."}`
)

func (c *contentful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, action, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, contentfulEntries), "/")
	entry := c.entries[id]
	reply := func(status int) {
		sys := map[string]any{"id": id, "type": "Entry", "version": entry.version}
		for name, value := range map[string]int{"publishedVersion": entry.published,
			"archivedVersion": entry.archived} {
			if value > 0 {
				sys[name] = value
			}
		}

		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"sys": sys, "fields": entry.fields,
			"metadata": entry.metadata})
	}

	fail := func(status int, id, message string) {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"sys":{"type":"Error","id":%q},"message":%q}`, id, message)
	}

	w.Header().Set("Content-Type", "application/vnd.contentful.management.v1+json")
	version, _ := strconv.Atoi(r.Header.Get("X-Contentful-Version"))
	switch {
	case r.Header.Get("Authorization") != "Bearer token-of-contentful":
		fail(401, "AccessTokenInvalid",
			"The access token you sent could not be found or is invalid.")
	case entry == nil && (r.Method != http.MethodPut || action != "" || version > 0):
		fail(404, "NotFound", "The resource could not be found.")
	case r.Method == http.MethodGet:
		reply(200)
	case r.Method == http.MethodDelete && action == "published":
		entry.published, entry.version = 0, entry.version+1
		reply(200)
	case r.Method == http.MethodDelete && entry.published > 0:
		fail(400, "BadRequest", "Cannot deleted published")
	case r.Method == http.MethodDelete:
		delete(c.entries, id)
		w.WriteHeader(http.StatusNoContent)
	case entry != nil && entry.version != version:
		fail(409, "VersionMismatch", "Version mismatch error.")
	case action == "published":
		entry.published, entry.version = entry.version, entry.version+1
		c.recordPublished(id)
		reply(200)

	case entry == nil && r.Header.Get("X-Contentful-Content-Type") != "article":
		fail(422, "UnknownContentType", "The content type is unknown.")
	default:
		status := 200
		if entry == nil {
			entry, status = &contentfulEntry{}, 201
			c.entries[id] = entry
		}

		var body struct{ Fields, Metadata any }
		_ = json.NewDecoder(r.Body).Decode(&body)
		entry.fields, entry.metadata, entry.version = body.Fields, body.Metadata, entry.version+1
		reply(status)
	}
}

// newContentful returns a CMS with the given version of the entry harbour-opens; 0 = without the
// entry.
func newContentful(version int) *contentful {
	c := &contentful{entries: map[string]*contentfulEntry{}}
	if version > 0 {
		c.entries[contentfulID] = &contentfulEntry{version: version,
			fields:   map[string]any{"teaser": map[string]any{"en-US": "Read this"}},
			metadata: map[string]any{"tags": []any{"of-editors"}}}
	}
	return c
}

func openContentful(t *testing.T, cms *contentful, token string, faults ...fault) *recipe {
	t.Helper()
	return openRecipe(t, "contentful", &faultyCMS{Handler: cms, faults: faults},
		map[string]string{"CONTENTFUL_URL": "",
			"CONTENTFUL_SPACE": "space", "CONTENTFUL_ENVIRONMENT": "master",
			"CONTENTFUL_TOKEN": token})
}

func (c *contentful) snapshot() map[string]string { return printItems(c.entries) }

func (c *contentful) listArticles() (states []string) {
	for _, entry := range c.entries {
		states = append(states,
			nameState(entry.published > 0 && entry.published == entry.version-1))
	}
	return states
}

var contentfulHarness = harness[*contentful]{
	newCMS: func(isThere bool) *contentful {
		if isThere {
			return newContentful(6)
		}
		return newContentful(0)
	},
	open: func(t *testing.T, cms *contentful, faults ...fault) *recipe {
		t.Helper()
		return openContentful(t, cms, "token-of-contentful", faults...)
	},
	create:   "PUT " + contentfulEntries,
	noAPI:    "page of HTML",
	toCreate: "find create",
	ifNew:    "find create publish",
	ifThere:  "find update publish",
	removals: [2]string{"find unpublish remove", "find"},
}

func TestRecipe_Contentful(t *testing.T) {
	t.Parallel()
	const nothing = `{"sys":{"type":"Error","id":"NotFound"},"message":"The resource could not be found."}`
	contentfulHarness.checkDeliveries(t, map[string]delivery{
		"CreatedMeanwhile": {
			true, []fault{{request: "GET", status: 404, body: nothing}},
			"find create find update publish",
		},
		"EditedMeanwhile": {
			true, []fault{{request: "PUT", status: 409, body: versionMismatch}},
			"find update find update publish",
		},
		"EditedBeforePublish": {
			true, []fault{{request: "PUT " + contentfulEntries + contentfulID + "/published",
				status: 409, body: versionMismatch}},
			"find update publish find update publish",
		},
		"RemovedMeanwhile": {
			true, []fault{{request: "PUT", status: 404, body: nothing}},
			"find update find update publish",
		},
	}, func(t *testing.T, cms *contentful, wasThere bool) {
		t.Helper()
		inLocale := func(value any) any { return map[string]any{"en-US": value} }
		want := map[string]any{"slug": inLocale("harbour-opens"),
			"title": inLocale("The harbour opens"),
			"body":  inLocale("<p>From Monday on.</p>"), "tags": inLocale([]any{"harbour", "news"})}
		var metadata any
		if wasThere {
			want["teaser"], metadata = inLocale("Read this"),
				map[string]any{"tags": []any{"of-editors"}}
		}

		entry := cms.entries[contentfulID]
		if fmt.Sprint(entry.fields) != fmt.Sprint(want) ||
			fmt.Sprint(entry.metadata) != fmt.Sprint(metadata) {
			t.Errorf("got the entry %+v, want the fields %v and the metadata %v", entry,
				want, metadata)
		}
	})
}

func TestRecipe_ContentfulFailures(t *testing.T) {
	t.Parallel()
	contentfulHarness.checkFailures(t, map[string]failure{
		"AnswerLostAfterPublish": {
			false, fault{request: "PUT " + contentfulEntries + contentfulID + "/published",
				acts: true},
			weir.OutcomeRetry, "", "find create publish", "find update publish",
		},
		"RateLimit": {
			false, fault{request: "PUT", status: 429, header: "X-Contentful-RateLimit-Reset: 7",
				body: `{"sys":{"type":"Error","id":"RateLimitExceeded"}}`},
			weir.OutcomeUnavailable, "", "find create", "find create publish",
		},
		"NoSpace": {
			false, fault{request: "PUT", status: 404},
			weir.OutcomeUnavailable, "", "find create", "find create publish",
		},
		"NotValidForPublish": {
			false, fault{request: "PUT " + contentfulEntries + contentfulID + "/published",
				status: 422,
				body:   `{"sys":{"type":"Error","id":"ValidationFailed"},"message":"Validation error"}`},
			weir.OutcomeRejected, "", "find create publish", "find update publish",
		},
	})
}

func TestRecipe_ContentfulRefusals(t *testing.T) {
	t.Parallel()
	r := openContentful(t, newContentful(0), "another")
	checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeUnavailable,
		"could not be found or is invalid", "find")

	cms := newContentful(6)
	cms.entries[contentfulID].archived = 5
	r = openContentful(t, cms, "token-of-contentful")
	checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeRejected,
		"has archived the entry", "find")
}
