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

// directus answers as Directus 11.3 does to a user with few rights. All answers are copied from a real Directus.
type directus struct {
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
				"errors": []any{map[string]any{"message": message, "extensions": map[string]any{"code": code}}},
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
		for id, it := range d.items {
			if it["slug"] == r.URL.Query().Get("filter[slug][_eq]") && d.blind == 0 {
				found = append(found, map[string]any{"id": id})
			}
		}
		d.blind = max(0, d.blind-1)
		reply(200, map[string]any{"data": found})
	case r.Method == http.MethodPost:
		for _, it := range d.items {
			if it["slug"] == item["slug"] {
				fail(400, "RECORD_NOT_UNIQUE", `Value "a" for field "slug" in collection "articles" has to be unique.`)
				return
			}
		}
		d.next++
		if d.items == nil {
			d.items = map[int]map[string]any{}
		}
		d.items[d.next] = item
		reply(200, map[string]any{"data": map[string]any{"id": d.next}})
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
		d.items[id] = item
		reply(200, map[string]any{"data": map[string]any{"id": id}})
	}
}

func TestRecipe_Directus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cms   *directus
		token string
		want  weir.Outcome
		steps string
	}{
		"New": {&directus{}, "token-of-directus", weir.OutcomeDelivered, "find create"},
		"There": {
			&directus{next: 1, items: map[int]map[string]any{1: {"slug": "harbour-opens"}}}, "token-of-directus",
			weir.OutcomeDelivered, "find update",
		},
		"CreatedMeanwhile": {
			&directus{next: 1, items: map[int]map[string]any{1: {"slug": "harbour-opens"}}, blind: 1},
			"token-of-directus", weir.OutcomeDelivered, "find create find update",
		},
		"RemovedMeanwhile": {
			&directus{next: 1, items: map[int]map[string]any{1: {"slug": "harbour-opens"}}, lost: 1},
			"token-of-directus", weir.OutcomeDelivered, "find update find create",
		},
		"WrongToken": {&directus{}, "another-token", weir.OutcomeUnavailable, "find"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := openRecipe(t, "directus", c.cms, map[string]string{"DIRECTUS_URL": "", "DIRECTUS_TOKEN": c.token})
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
			if got := r.sendBody(r.readSample("delete.xml")); got.Outcome != weir.OutcomeDelivered ||
				len(c.cms.items) != 0 {
				t.Errorf("delete: got %+v and the items %v, want the outcome delivered and no item", got, c.cms.items)
			}
		})
	}
}
