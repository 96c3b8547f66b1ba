package app

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/weir"
)

// ghost answers the requests of the recipe as Ghost 5.130.6 does.
type ghost struct {
	mu    sync.Mutex
	next  int                       // number of requests to create a post
	posts map[string]map[string]any // by id
	page  string                    // slug of a page; no post can have this slug
}

const (
	ghostKeyID  = "6748592f4b9b7700010f6564"
	ghostSecret = "b1b5b9c1d4e5f6a7b8c9d0e1f2a3b4c5d6e7f8a9b0c1d2e3f4a5b6c7d8e9f0a1"
	ghostAway   = `{"errors":[{"message":"Resource not found error, cannot read post.",` +
		`"context":"Post not found.","type":"NotFoundError","code":null}]}`
	ghostStale = `{"errors":[{"message":"Saving failed! Someone else is editing this post.",` +
		`"type":"UpdateCollisionError","code":"UPDATE_COLLISION"}]}`
	ghostToken = `{"errors":[{"message":"Invalid token: jwt expired","context":null,` +
		`"type":"UnauthorizedError","code":"INVALID_JWT"}]}`
	// ghostInvalid names the field in "context", and not in "message".
	ghostInvalid = `{"errors":[{"message":"Validation error, cannot save post.",` +
		`"context":"Validation failed for %s.","type":"ValidationError","code":null}]}`
)

// isGhostToken reports whether a header has a token for the Admin API. The token must be signed with ghostSecret, and
// must be valid for at most five minutes.
func isGhostToken(header string) bool {
	token, hasScheme := strings.CutPrefix(header, "Ghost ")
	parts := strings.Split(token, ".")
	if !hasScheme || len(parts) != 3 {
		return false
	}
	secret, _ := hex.DecodeString(ghostSecret)
	sum := hmac.New(sha256.New, secret)
	sum.Write([]byte(parts[0] + "." + parts[1]))
	var head struct{ Alg, Kid string }
	var claims struct {
		Aud      any
		Iat, Exp float64
	}
	for i, into := range []any{&head, &claims} {
		text, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil || json.Unmarshal(text, into) != nil {
			return false
		}
	}
	now := float64(time.Now().Unix())
	return parts[2] == base64.RawURLEncoding.EncodeToString(sum.Sum(nil)) && head.Alg == "HS256" &&
		head.Kid == ghostKeyID && strings.Contains(fmt.Sprint(claims.Aud), "/admin/") &&
		claims.Exp > now && claims.Exp-claims.Iat <= 300
}

func (g *ghost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	reply := func(status int, text string) {
		w.WriteHeader(status)
		fmt.Fprint(w, text)
	}
	path := strings.Trim(strings.TrimPrefix(r.URL.Path, "/ghost/api/admin/posts"), "/")
	if !isGhostToken(r.Header.Get("Authorization")) {
		reply(401, ghostToken)
		return
	}
	id := path
	if slug, isLookup := strings.CutPrefix(path, "slug/"); isLookup {
		for other, post := range g.posts {
			if post["slug"] == slug {
				id = other
			}
		}
	}
	post := g.posts[id]
	if r.Method == http.MethodPost {
		g.next++
		id, post = fmt.Sprint("post", g.next), map[string]any{"updated_at": ""}
	}
	if post == nil {
		reply(404, ghostAway)
		return
	}
	if r.Method == http.MethodDelete {
		delete(g.posts, id)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	status := 200
	if r.Method != http.MethodGet {
		var body struct{ Posts []map[string]any }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Query().Get("source") != "html" ||
			body.Posts[0]["title"] == "refused" {
			reply(422, fmt.Sprintf(ghostInvalid, "title"))
			return
		}
		if _, isList := body.Posts[0]["tags"].([]any); !isList {
			reply(422, fmt.Sprintf(ghostInvalid, "tags"))
			return
		}
		if r.Method == http.MethodPut && body.Posts[0]["updated_at"] != post["updated_at"] {
			reply(409, ghostStale)
			return
		}
		if r.Method == http.MethodPost {
			status = 201
		}
		post = body.Posts[0]
		if post["slug"] == g.page {
			post["slug"] = g.page + "-2"
		}
		post["updated_at"] = fmt.Sprintf("2026-01-31T08:00:%02d.000Z", len(g.posts)+1)
		g.posts[id] = post
	}
	text, _ := json.Marshal(map[string]any{"posts": []any{
		map[string]any{"id": id, "slug": post["slug"], "updated_at": post["updated_at"]}}})
	reply(status, string(text))
}

func (g *ghost) listArticles() (states []string) {
	for _, post := range g.posts {
		states = append(states, nameState(post["status"] == "published"))
	}
	return states
}

// newGhost returns a CMS. If isThere is set, the CMS has the post harbour-opens.
func newGhost(isThere bool) *ghost {
	g := &ghost{posts: map[string]map[string]any{}, page: "about"}
	if isThere {
		g.posts["post0"] = map[string]any{"slug": "harbour-opens", "updated_at": "2026-01-30T08:00:00.000Z"}
	}
	return g
}

func openGhost(t *testing.T, cms *ghost, secret string, faults ...fault) *recipe {
	t.Helper()
	return openRecipe(t, "ghost", &faultyCMS{Handler: cms, faults: faults},
		map[string]string{"GHOST_URL": "", "GHOST_KEY_ID": ghostKeyID, "GHOST_KEY_SECRET": secret})
}

var ghostHarness = harness[*ghost]{
	newCMS: newGhost,
	open: func(t *testing.T, cms *ghost, faults ...fault) *recipe {
		t.Helper()
		return openGhost(t, cms, ghostSecret, faults...)
	},
	create:   "POST",
	noAPI:    "no Admin API",
	toCreate: "find create",
	ifNew:    "find create",
	ifThere:  "find update",
	removals: [2]string{"find remove", "find"},
}

func TestRecipe_Ghost(t *testing.T) {
	t.Parallel()
	ghostHarness.checkDeliveries(t, map[string]delivery{
		"EditedMeanwhile": {
			true, []fault{{request: "PUT", status: 409, body: ghostStale}}, "find update find update",
		},
		"RemovedMeanwhile": {
			true, []fault{{request: "PUT", status: 404, body: ghostAway}}, "find update find update",
		},
		"TokenExpired": {false, []fault{{request: "POST", status: 401, body: ghostToken}}, "find create"},
	}, func(t *testing.T, cms *ghost, _ bool) {
		t.Helper()
		for _, post := range cms.posts {
			delete(post, "updated_at")
			want := map[string]any{"slug": "harbour-opens", "title": "The harbour opens", "status": "published",
				"html": "<p>From Monday on.</p>", "tags": []any{"harbour", "news"}}
			if fmt.Sprint(post) != fmt.Sprint(want) {
				t.Errorf("got the post %v, want %v", post, want)
			}
		}
	})
}

func TestRecipe_GhostFailures(t *testing.T) {
	t.Parallel()
	ghostHarness.checkFailures(t, map[string]failure{})
}

func TestRecipe_GhostRefusals(t *testing.T) {
	t.Parallel()
	write := func(slug, title string) string {
		return fmt.Sprintf(`<article slug=%q version="1"><title>%s</title></article>`, slug, title)
	}
	r := openGhost(t, newGhost(false), ghostSecret)
	checkResult(t, r.sendBody(write("about", "A")), weir.OutcomeRejected, "made about-2 of the slug about",
		"find create")
	checkResult(t, r.sendBody(write("a", "refused")), weir.OutcomeRejected, "Validation failed for title",
		"find create")
	checkResult(t, r.sendBody(write("without-tags", "A")), weir.OutcomeDelivered, "", "find create")
	checkResult(t, r.sendBody(write("Not A Slug", "A")), weir.OutcomeRejected, "write not-a-slug", "find")
	r = openGhost(t, newGhost(false), strings.Repeat("00", 32))
	if got := r.sendBody(write("a", "A")); got.Outcome != weir.OutcomeUnavailable {
		t.Errorf("wrong secret of the key: got %+v, want the outcome %s", got, weir.OutcomeUnavailable)
	}
}
