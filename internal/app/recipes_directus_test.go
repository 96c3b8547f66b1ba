package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"weir/internal/weir"
)

// directus answers as Directus 11.3 does to a user with few rights. All answers are copied from a
// real Directus.
type directus struct {
	liberties
	mu    sync.Mutex
	next  int                    // id of the last item that was created
	items map[int]map[string]any // by id
	blind int                    // number of further look-ups that find nothing
	lost  int                    // number of further updates that find the item removed
}

func (d *directus) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	reply := func(status int, value any) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(status)
		if value != nil {
			_ = json.NewEncoder(w).Encode(value)
		}
	}

	fail := func(status int, code, message string) {
		reply(
			status,
			map[string]any{
				"errors": []any{map[string]any{"message": message,
					"extensions": map[string]any{"code": code}}},
			},
		)
	}

	if r.Header.Get("Authorization") != "Bearer token-of-directus" {
		fail(401, "INVALID_CREDENTIALS", "Invalid user credentials.")
		return
	}

	id, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/items/articles/"))
	item := map[string]any{}
	if r.Method == http.MethodPost || r.Method == http.MethodPatch {
		if err := json.NewDecoder(r.Body).Decode(&item); err != nil {
			fail(400, "INVALID_PAYLOAD", "Invalid payload.")
			return
		}

		if _, isNumber := item["version"].(float64); item["version"] != nil && !isNumber {
			fail(500, "INTERNAL_SERVER_ERROR", "An unexpected error occurred.")
			return
		}
	}

	switch {
	case r.Method == http.MethodGet:
		found := []any{}
		for _, id := range slices.Sorted(maps.Keys(d.items)) {
			it := d.items[id]
			if d.finds(it["slug"], r.URL.Query().Get("filter[slug][_eq]")) && d.blind == 0 {
				found = append(found, map[string]any{"id": id, "slug": it["slug"]})
			}
		}

		d.blind = max(0, d.blind-1)
		reply(200, map[string]any{"data": found})

	case r.Method == http.MethodPost:
		item["slug"] = d.storedSlug(item["slug"])
		for _, it := range d.items {
			if it["slug"] == item["slug"] {
				fail(400, "RECORD_NOT_UNIQUE",
					`Value "a" for field "slug" in collection "articles" has to be unique.`)
				return
			}
		}

		d.next++
		if d.items == nil {
			d.items = map[int]map[string]any{}
		}

		d.items[d.next] = item
		d.recordState(item)
		reply(200, map[string]any{"data": map[string]any{"id": d.next, "slug": item["slug"]}})

	default:
		if d.lost > 0 {
			d.lost--
			delete(d.items, id)
		}

		if d.items[id] == nil {
			fail(403, "FORBIDDEN", "You don't have permission to access this.")
			return
		}

		if r.Method == http.MethodDelete {
			delete(d.items, id)
			reply(204, nil)
			return
		}

		maps.Copy(d.items[id], item)
		d.recordState(d.items[id])
		reply(200, map[string]any{"data": map[string]any{"id": id, "slug": d.items[id]["slug"]}})
	}
}

func (d *directus) recordState(item map[string]any) {
	if item["status"] == "published" {
		d.recordPublished(item["slug"])
	}
}

func (d *directus) listArticles() (states []string) {
	for _, item := range d.items {
		states = append(states, nameState(item["status"] == "published"))
	}
	return states
}

func (d *directus) snapshot() map[string]string {
	printed := map[string]string{}
	for id, item := range d.items {
		printed[strconv.Itoa(id)] = fmt.Sprint(item)
	}
	return printed
}

func newDirectus(slugs ...string) *directus {
	d := &directus{items: map[int]map[string]any{}}
	for _, slug := range slugs {
		d.next++
		d.items[d.next] = map[string]any{"slug": slug}
	}
	return d
}

func openDirectus(t *testing.T, cms *directus, token string) *recipe {
	t.Helper()
	return openRecipe(t, "directus", cms,
		map[string]string{"DIRECTUS_URL": "", "DIRECTUS_TOKEN": token})
}

func TestRecipe_Directus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cms   *directus
		token string
		want  weir.Outcome
		steps string
	}{
		"New": {newDirectus(), "token-of-directus", weir.OutcomeDelivered, "find create publish"},
		"There": {
			newDirectus("harbour-opens"), "token-of-directus", weir.OutcomeDelivered, "find update",
		},
		"CreatedMeanwhile": {
			&directus{next: 1,
				items: map[int]map[string]any{1: {"slug": "harbour-opens"}}, blind: 1},
			"token-of-directus", weir.OutcomeDelivered, "find create find update",
		},
		"WrongToken": {newDirectus(), "another-token", weir.OutcomeUnavailable, "find"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := openDirectus(t, c.cms, c.token)
			checkResult(t, r.sendBody(r.readSample("article.xml")), c.want, "", c.steps)
			if c.want != weir.OutcomeDelivered {
				return
			}

			want := map[string]any{
				"slug":    "harbour-opens",
				"version": 3.0,
				"title":   "The harbour opens",
				"body":    "<p>From Monday on.</p>",
				"tags":    []any{"harbour", "news"},
				"status":  "published",
			}
			if len(c.cms.items) != 1 || fmt.Sprint(c.cms.items[c.cms.next]) != fmt.Sprint(want) {
				t.Errorf("got the items %v, want one item %v", c.cms.items, want)
			}

			if got := r.sendBody(r.readSample("delete.xml")); got.Outcome !=
				weir.OutcomeDelivered ||
				len(c.cms.items) != 0 {
				t.Errorf("delete: got %+v and the items %v, want the outcome delivered and no item",
					got, c.cms.items)
			}
		})
	}
}

func TestRecipe_DirectusRefusals(t *testing.T) {
	t.Parallel()
	folded := newDirectus("News")
	folded.isFound = strings.EqualFold
	r := openDirectus(t, folded, "token-of-directus")
	article := `<article slug="%s" version="1"><title>A</title></article>`
	checkResult(t, r.sendBody(fmt.Sprintf(article, "news")), weir.OutcomeRejected,
		"takes News for news", "find")

	cms := newDirectus("a", "a")
	r = openDirectus(t, cms, "token-of-directus")
	checkResult(t, r.sendBody(fmt.Sprintf(article, "a")), weir.OutcomeRejected,
		"the slug a is there twice", "find")

	for _, key := range []string{"true", "NULL", "$NOW", "$CURRENT_USER.id"} {
		checkResult(t, r.sendBody(fmt.Sprintf(article, key)), weir.OutcomeRejected,
			"as a value of its own", "find")
	}

	if len(cms.items) != 2 {
		t.Errorf("got the items %v, want 2 as before", cms.items)
	}
}

// Directus answers 403 for an item that is gone, as for a missing right. The next attempt sees
// which.
func TestRecipe_DirectusRemoved(t *testing.T) {
	t.Parallel()
	cms := newDirectus("harbour-opens")
	cms.lost = 1
	r := openDirectus(t, cms, "token-of-directus")
	article := r.readSample("article.xml")
	got := r.sendBody(article)
	checkResult(t, got, weir.OutcomeUnavailable, "update: 403", "find update")
	if !got.Refused {
		t.Errorf("got %+v, want it refused: messages of other keys go on", got)
	}

	checkResult(t, r.sendBody(article), weir.OutcomeDelivered, "", "find create publish")
}

// An editor can give an item another slug. The next message finds the item by its remembered id.
func TestRecipe_DirectusRenamed(t *testing.T) {
	t.Parallel()
	cms := newDirectus()
	r := openDirectus(t, cms, "token-of-directus")
	article := r.readSample("article.xml")
	if got := r.sendBody(article); got.RememberedID != "1" {
		t.Fatalf("got %+v, want the id 1 remembered", got)
	}

	cms.items[1]["slug"] = "renamed"
	checkResult(t, r.sendRemembering(article, "1"), weir.OutcomeDelivered, "", "find update")
	if len(cms.items) != 1 || cms.items[1]["slug"] != "harbour-opens" {
		t.Errorf("got the items %v, want one with its slug", cms.items)
	}

	clear(cms.items)
	removed := r.sendRemembering(article, "1")
	checkResult(t, removed, weir.OutcomeDelivered, "", "find update find create publish")
	if !removed.IsForgotten || removed.RememberedID != "2" {
		t.Errorf("got %+v, want the id of the removed item forgotten", removed)
	}
}
