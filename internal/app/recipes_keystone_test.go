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

// keystone answers the requests of the recipe as Keystone (@keystone-6/core 8.1) does: with status
// 200 to everything.
type keystone struct {
	liberties
	mu    sync.Mutex
	next  int                       // number of the newest item
	items map[string]map[string]any // by id
	// errors in place of the next answers, in order; "" = no error
	failures []string
}

const (
	// keystonePrisma is the error if the database is away, and if another item has the slug.
	keystonePrisma = `{"message":"Prisma error","path":["article"],"extensions":{"code":"KS_PRISMA_ERROR"}}`
	keystoneDenied = `{"message":"Access denied: You cannot create that Article","path":["createArticle"],` +
		`"extensions":{"code":"KS_ACCESS_DENIED"}}`
	keystoneAway = `{"message":"Access denied: You cannot update that Article - it may not exist",` +
		`"path":["updateArticle"],"extensions":{"code":"KS_ACCESS_DENIED"}}`
	keystoneInvalid = `{"message":"You provided invalid data for this operation.\n  - Article.title: Title must ` +
		`be at most 200 characters long","path":["createArticle"],"extensions":{"code":"KS_VALIDATION_FAILURE"}}`
)

func newKeystone(slugs ...string) *keystone {
	k := &keystone{items: map[string]map[string]any{}}
	for _, slug := range slugs {
		k.next++
		k.items[fmt.Sprint("item", k.next)] = map[string]any{"slug": slug}
	}
	return k
}

func (k *keystone) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	var request struct {
		Query     string
		Variables struct {
			Slug, ID string
			Data     map[string]any
		}
	}

	_ = json.NewDecoder(r.Body).Decode(&request)
	v := request.Variables
	field := "article"
	for _, name := range []string{"createArticle", "updateArticle", "deleteArticle"} {
		if strings.Contains(request.Query, name+"(") {
			field = name
		}
	}

	failure := ""
	if len(k.failures) > 0 {
		failure, k.failures = k.failures[0], k.failures[1:]
	}

	isSignedIn := r.Header.Get("Authorization") == "Bearer token-of-keystone"
	switch item := k.items[v.ID]; {
	case failure != "":
	case field != "article" && !isSignedIn:
		failure = keystoneDenied
	case (field == "updateArticle" || field == "deleteArticle") && item == nil:
		failure = keystoneAway
	case v.Data["title"] == "refused":
		failure = keystoneInvalid
	case field == "createArticle" && k.findItem(fmt.Sprint(v.Data["slug"])) != "":
		failure = keystonePrisma
	}

	if failure != "" {
		fmt.Fprintf(w, `{"errors":[%s],"data":{"%s":null}}`, failure, field)
		return
	}

	_ = json.NewEncoder(w).Encode(
		map[string]any{"data": map[string]any{field: k.execute(field, v.ID, v.Slug, v.Data)}})
}

// execute returns the id and the slug of the item that a request reads or writes.
func (k *keystone) execute(field, id, slug string, data map[string]any) any {
	switch field {
	case "article":
		if id = k.findItem(slug); id == "" {
			return nil
		}

	case "createArticle":
		k.next++
		id = fmt.Sprint("item", k.next)
		data["slug"] = k.storedSlug(data["slug"])
		k.items[id] = data

	case "updateArticle":
		maps.Copy(k.items[id], data)
	}

	item := k.items[id]
	if field == "deleteArticle" {
		delete(k.items, id)
	} else if field != "article" && item["status"] == "published" {
		k.recordPublished(item["slug"])
	}

	return map[string]any{"id": id, "slug": item["slug"]}
}

// findItem returns the id of the item that the database finds by a slug; "" = none.
func (k *keystone) findItem(slug string) string {
	for _, id := range slices.Sorted(maps.Keys(k.items)) {
		if k.finds(k.items[id]["slug"], slug) {
			return id
		}
	}
	return ""
}

func (k *keystone) listArticles() (states []string) {
	for _, item := range k.items {
		states = append(states, nameState(item["status"] == "published"))
	}
	return states
}

func (k *keystone) snapshot() map[string]string { return printItems(k.items) }

func openKeystone(t *testing.T, cms *keystone, token string, faults ...fault) *recipe {
	t.Helper()
	return openRecipe(t, "keystone", &faultyCMS{Handler: cms, faults: faults},
		map[string]string{"KEYSTONE_URL": "", "KEYSTONE_TOKEN": token})
}

func TestRecipe_Keystone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		isThere  bool
		failures []string
		steps    string
	}{
		"New":   {false, nil, "find create publish"},
		"There": {true, nil, "find update"},
		"CreatedMeanwhile": {false, []string{"", keystonePrisma},
			"find create find create publish"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cms := newKeystone()
			if c.isThere {
				cms = newKeystone("harbour-opens")
			}

			cms.failures = c.failures
			r := openKeystone(t, cms, "token-of-keystone")
			checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeDelivered,
				"", c.steps)
			checkOneArticle(t, cms)
			want := map[string]any{"slug": "harbour-opens", "title": "The harbour opens",
				"version": 3.0, "body": "<p>From Monday on.</p>", "status": "published"}
			if got := cms.items["item1"]; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got the item %v, want %v", got, want)
			}

			for _, steps := range []string{"find remove", "find"} {
				checkResult(t, r.sendBody(r.readSample("delete.xml")),
					weir.OutcomeDelivered, "", steps)
				if len(cms.items) != 0 {
					t.Errorf("after a delete: got the items %v, want none", cms.items)
				}
			}
		})
	}
}

func TestRecipe_KeystoneFails(t *testing.T) {
	t.Parallel()
	folded := newKeystone("Harbour-Opens")
	folded.isFound = strings.EqualFold
	for name, c := range map[string]struct {
		cms      *keystone
		token    string
		failures []string
		want     weir.Outcome
		reason   string
		steps    string
	}{
		"NoDatabase": {newKeystone(), "token-of-keystone", []string{keystonePrisma},
			weir.OutcomeUnavailable, "Prisma error", "find"},
		"NoDatabaseForCreate": {newKeystone(), "token-of-keystone",
			[]string{"", keystonePrisma, keystonePrisma},
			weir.OutcomeUnavailable, "find: 200: Prisma error", "find create find"},
		"TokenEnded": {newKeystone(), "another", nil, weir.OutcomeUnavailable,
			"create: 200: Access denied: You cannot create that Article", "find create"},
		"WrongValue": {newKeystone(), "token-of-keystone", []string{"", keystoneInvalid},
			weir.OutcomeRejected, "Title must be at most 200 characters long", "find create"},
		"OtherCase": {folded, "token-of-keystone", nil, weir.OutcomeRejected,
			"takes Harbour-Opens for harbour-opens", "find"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.cms.failures = c.failures
			r := openKeystone(t, c.cms, c.token)
			before := c.cms.snapshot()
			checkResult(t, r.sendBody(r.readSample("article.xml")), c.want, c.reason, c.steps)
			if got := c.cms.snapshot(); !maps.Equal(got, before) {
				t.Errorf("got the items %v, want %v as before", got, before)
			}
		})
	}
}

// Keystone has the same error for an item that is gone, and for one that the user may not change.
// The next attempt sees which.
func TestRecipe_KeystoneRemoved(t *testing.T) {
	t.Parallel()
	for steps, failures := range map[string][]string{
		"find update": {"", keystoneAway}, "find create publish": {"", "", keystoneAway},
	} {
		cms := newKeystone()
		if len(failures) == 2 {
			cms = newKeystone("harbour-opens")
		}

		cms.failures = failures
		r := openKeystone(t, cms, "token-of-keystone")
		article := r.readSample("article.xml")
		got := r.sendBody(article)
		checkResult(t, got, weir.OutcomeUnavailable, "it may not exist", steps)
		if !got.Refused {
			t.Errorf("got %+v, want it refused: messages of other keys go on", got)
		}

		checkResult(t, r.sendBody(article), weir.OutcomeDelivered, "", "find update")
	}
}

// An editor can give an article another slug. The next message finds the article by its remembered
// id.
func TestRecipe_KeystoneRenamed(t *testing.T) {
	t.Parallel()
	cms := newKeystone()
	r := openKeystone(t, cms, "token-of-keystone")
	article := r.readSample("article.xml")
	if got := r.sendBody(article); got.RememberedID != "item1" {
		t.Fatalf("got %+v, want item1 remembered", got)
	}

	cms.items["item1"]["slug"] = "renamed"
	checkResult(t, r.sendRemembering(article, "item1"), weir.OutcomeDelivered, "", "find update")
	checkOneArticle(t, cms)
	if cms.items["item1"]["slug"] != "harbour-opens" {
		t.Errorf("got the item %v, want its slug back", cms.items["item1"])
	}

	clear(cms.items)
	removed := r.sendRemembering(article, "item1")
	checkResult(t, removed, weir.OutcomeDelivered, "", "find update find create publish")
	if !removed.IsForgotten || removed.RememberedID != "item2" {
		t.Errorf("got %+v, want the id of the removed item forgotten", removed)
	}
}
