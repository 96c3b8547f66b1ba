package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/internal/weir"
)

// itemsCMS is the CMS of the working example in docs/recipes.md: items found by their field ref.
type itemsCMS struct {
	liberties
	mu    sync.Mutex
	next  int
	items map[string]map[string]any // by id
}

func (c *itemsCMS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	id := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/items"), "/")
	if r.Method == http.MethodGet {
		found := []any{}
		for _, id := range slices.Sorted(maps.Keys(c.items)) {
			if c.finds(c.items[id]["ref"], r.URL.Query().Get("ref")) {
				found = append(found, map[string]any{"id": id, "ref": c.items[id]["ref"]})
			}
		}

		_ = json.NewEncoder(w).Encode(map[string]any{"data": found})
		return
	}

	if r.Method == http.MethodPost {
		c.next++
		id = fmt.Sprint("new", c.next)
	}

	var item map[string]any
	_ = json.NewDecoder(r.Body).Decode(&item)
	c.items[id] = item
	_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{"id": id}})
}

// A newcomer begins with the working example. So it must not write to the item of another key,
// whatever the CMS's look-up finds.
func TestRecipes_WorkingExampleCompares(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}

	_, example, _ := strings.Cut(string(text), "## A working example")
	_, example, _ = strings.Cut(example, "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	cms := &itemsCMS{items: map[string]map[string]any{},
		liberties: liberties{isFound: isFoundLoosely}}
	server := httptest.NewServer(cms)
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "weir.yaml")
	example = strings.Replace(example, "https://cms.example/api", server.URL, 1)
	if err := os.WriteFile(path, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}

	r := openSettings(t, path, map[string]string{"CMS_TOKEN": "token-of-cms"})

	for n, ref := range otherItems {
		cms.items[fmt.Sprint(n)] = map[string]any{"ref": ref}
	}

	before := printItems(cms.items)

	for _, key := range hostileKeys {
		article := fmt.Sprintf(`<article id="%s"><title>T</title></article>`, key)
		if _, err := r.app.contracts.Accept(t.Context(), "application/xml", []byte(article)); err !=
			nil {
			continue
		}

		n := cms.next
		for _, steps := range []string{"find create", "find update"} {
			checkResult(t, r.sendBody(article), weir.OutcomeDelivered, "", steps)
		}

		if cms.next != n+1 {
			t.Errorf("the key %q: got %d new items, want %d: one for each key", key, cms.next, n+1)
		}
	}

	for id, content := range before {
		if got := fmt.Sprint(cms.items[id]); got != content {
			t.Errorf("got the item %s, want it untouched: %s", got, content)
		}
	}
}
