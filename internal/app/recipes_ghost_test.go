package app

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/weir"
)

// ghost answers the requests of the recipe as Ghost 6.65 does.
type ghost struct {
	liberties
	mu    sync.Mutex
	next  int                       // number of requests to create a post
	posts map[string]map[string]any // by id
	page  string                    // slug of a page; no post can have this slug
	saves int                       // number of times that a post was saved
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
	// ghostInvalid names the field in "details", and not in "message".
	ghostInvalid = `{"errors":[{"message":"Validation error, cannot save post.","context":"Validation failed for 0.",` +
		`"type":"ValidationError","details":[{"instancePath":"/posts/0/%[1]s","keyword":"maxLength",` +
		`"params":{"limit":191},"message":"must NOT have more than 191 characters"},{"instancePath":"/posts/0/%[1]s",` +
		`"message":"must match a schema in anyOf"}],"property":"0","help":null,"code":null}]}`
	ghostLong = `{"errors":[{"message":"Validation error, cannot save post.","context":"Value in [posts.title] ` +
		`exceeds maximum length of 255 characters. posts.title","type":"ValidationError","details":null,"code":null}]}`
	ghostNoDatabase = `{"errors":[{"message":"An unexpected error occurred, please try again.",` +
		`"context":"connect ECONNREFUSED 127.0.0.1:17140","type":"InternalServerError","details":null,"code":null}]}`
)

// isGhostToken reports whether a header has a token for the Admin API. The token must be signed
// with ghostSecret, and must be valid for at most five minutes.
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
		id = g.findSlug(slug)
	}

	post := g.posts[id]
	switch {
	case r.Method == http.MethodPost:
		g.next++
		id, post = fmt.Sprint("post", g.next), map[string]any{"updated_at": ""}
	case post == nil:
		reply(404, ghostAway)
		return
	case r.Method == http.MethodDelete:
		delete(g.posts, id)
		w.WriteHeader(http.StatusNoContent)
		return
	}

	status := 200
	if r.Method != http.MethodGet {
		if refusal, words := g.save(id, post, r); refusal != 0 {
			reply(refusal, words)
			return
		}

		if r.Method == http.MethodPost {
			status = 201
		}
	}

	text, _ := json.Marshal(map[string]any{"posts": []any{
		map[string]any{"id": id, "slug": post["slug"], "updated_at": post["updated_at"]}}})
	reply(status, string(text))
}

// findSlug returns the id of the post that a look-up by slug shows; "" = none. MySQL compares
// without case and accents.
func (g *ghost) findSlug(slug string) string {
	for _, id := range slices.Sorted(maps.Keys(g.posts)) {
		if g.finds(g.posts[id]["slug"], slug) {
			return id
		}
	}
	return ""
}

// save changes the fields of a post that the request has. If Ghost refuses the request, save
// returns the status and the body of the answer.
func (g *ghost) save(id string, post map[string]any, r *http.Request) (refusal int, words string) {
	var body struct{ Posts []map[string]any }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return 422, fmt.Sprintf(ghostInvalid, "title")
	}

	change := body.Posts[0]
	_, isList := change["tags"].([]any)
	switch {
	case change["title"] == "refused":
		return 422, ghostLong
	case change["html"] != nil && r.URL.Query().Get("source") != "html":
		return 422, fmt.Sprintf(ghostInvalid, "html")
	case change["title"] != nil &&
		!isList, strings.Contains(fmt.Sprint(change["tags"]), "tttttttt"):
		return 422, fmt.Sprintf(ghostInvalid, "tags/0")
	case r.Method == http.MethodPut && change["updated_at"] != post["updated_at"]:
		return 409, ghostStale
	}

	if slug, is := change["slug"].(string); is && slug != post["slug"] {
		change["slug"] = g.makeUnique(slug)
	}

	g.saves++
	maps.Copy(post, change)
	post["updated_at"] = fmt.Sprintf("2026-01-31T08:00:%02d.000Z", g.saves)
	g.posts[id] = post
	if post["status"] == "published" {
		g.recordPublished(post["slug"])
	}

	return 0, ""
}

// makeUnique returns the slug that Ghost stores.
func (g *ghost) makeUnique(slug string) string {
	if slug == "rss" {
		return "rss-post"
	}

	slug = g.storedSlug(slug)
	candidate := slug
	for n := 2; candidate == g.page || g.findSlug(candidate) != "" && g.isFound == nil; n++ {
		candidate = fmt.Sprint(slug, "-", n)
	}

	return candidate
}

func (g *ghost) snapshot() map[string]string { return printItems(g.posts) }

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
		g.add("harbour-opens")
	}
	return g
}

// add adds a draft.
func (g *ghost) add(slug string) {
	g.posts[fmt.Sprint("post0", len(g.posts))] = map[string]any{"slug": slug,
		"updated_at": "2026-01-30T08:00:00.000Z"}
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
	ifNew:    "find create publish",
	ifThere:  "find update",
	removals: [2]string{"find remove", "find"},
}

func TestRecipe_Ghost(t *testing.T) {
	t.Parallel()
	ghostHarness.checkDeliveries(t, map[string]delivery{
		"EditedMeanwhile": {
			true, []fault{{request: "PUT", status: 409, body: ghostStale}},
			"find update find update",
		},
		"RemovedMeanwhile": {
			true, []fault{{request: "PUT", status: 404, body: ghostAway}},
			"find update find update",
		},
		"RemovedBeforePublish": {
			false, []fault{{request: "PUT", status: 404, body: ghostAway}},
			"find create publish find update",
		},
		"TokenExpired": {false, []fault{{request: "POST", status: 401, body: ghostToken}},
			"find create publish"},
	}, func(t *testing.T, cms *ghost, _ bool) {
		t.Helper()
		for _, post := range cms.posts {
			delete(post, "updated_at")
			want := map[string]any{"slug": "harbour-opens", "title": "The harbour opens",
				"status": "published",
				"html":   "<p>From Monday on.</p>", "tags": []any{"harbour", "news"}}
			if fmt.Sprint(post) != fmt.Sprint(want) {
				t.Errorf("got the post %v, want %v", post, want)
			}
		}
	})
}

func TestRecipe_GhostFailures(t *testing.T) {
	t.Parallel()
	ghostHarness.checkFailures(t, map[string]failure{
		"AnswerLostAfterPublish": {
			false, fault{request: "PUT", acts: true}, weir.OutcomeRetry, "", "find create publish",
			"find update",
		},
		"NoDatabase": {
			false, fault{request: "GET", status: 500, body: ghostNoDatabase},
			weir.OutcomeUnavailable,
			"Ghost cannot reach its database: connect ECONNREFUSED", "find",
			"find create publish",
		},
		"NoDatabaseForPublish": {
			false, fault{request: "PUT", status: 500, body: ghostNoDatabase},
			weir.OutcomeUnavailable, "Ghost cannot reach its database", "find create publish",
			"find update",
		},
	})
}

func TestRecipe_GhostRefusals(t *testing.T) {
	t.Parallel()
	write := func(slug, title string, tags ...string) string {
		body := fmt.Sprintf(`<article slug=%q version="1"><title>%s</title>`, slug, title)
		for _, tag := range tags {
			body += "<tag>" + tag + "</tag>"
		}
		return body + "</article>"
	}

	cms := newGhost(false)
	r := openGhost(t, cms, ghostSecret)
	for range 2 { // each replay is refused, too, and leaves nothing behind
		checkResult(t, r.sendBody(write("about", "A")), weir.OutcomeRejected,
			"Ghost made about-2 of the slug about: a page has it", "find create undo")
		checkResult(t, r.sendBody(write("rss", "A")), weir.OutcomeRejected,
			"Ghost made rss-post of the slug rss: Ghost keeps this slug for itself",
			"find create undo")
	}

	checkResult(t, r.sendBody(write("a", "refused")), weir.OutcomeRejected,
		"Value in [posts.title] exceeds maximum length of 255 characters", "find create")
	checkResult(t, r.sendBody(write("a", "A", strings.Repeat("t", 300))), weir.OutcomeRejected,
		"/posts/0/tags/0 must NOT have more than 191 characters; /posts/0/tags/0 must match",
		"find create")
	checkResult(t, r.sendBody(write("Not A Slug", "A")), weir.OutcomeRejected,
		"write not-a-slug", "find")
	if len(cms.posts) != 0 || len(cms.published) != 0 {
		t.Errorf("got the posts %v, and %v published, want none", cms.posts, cms.published)
	}

	checkResult(t, r.sendBody(write("without_tags", "A")), weir.OutcomeDelivered, "",
		"find create publish")
	r = openGhost(t, newGhost(false), strings.Repeat("00", 32))
	if got := r.sendBody(write("a", "A")); got.Outcome != weir.OutcomeUnavailable {
		t.Errorf("wrong secret of the key: got %+v, want the outcome %s", got,
			weir.OutcomeUnavailable)
	}
}

// An editor can give a post another slug. The next message finds the post by its remembered id, and
// gives it its slug back. Otherwise the article would be there twice.
func TestRecipe_GhostRenamed(t *testing.T) {
	t.Parallel()
	cms := newGhost(false)
	r := openGhost(t, cms, ghostSecret)
	article := r.readSample("article.xml")
	first := r.sendBody(article)
	if first.RememberedID != "post1" {
		t.Fatalf("got the id %q remembered, want post1", first.RememberedID)
	}

	cms.posts["post1"]["slug"] = "renamed"
	checkResult(t, r.sendRemembering(article, "post1"), weir.OutcomeDelivered, "",
		"find read update")
	if len(cms.posts) != 1 || cms.posts["post1"]["slug"] != "harbour-opens" {
		t.Errorf("got the posts %v, want one with its slug", cms.posts)
	}

	cms.posts["post1"]["slug"], cms.page = "renamed", "harbour-opens"
	checkResult(t, r.sendRemembering(article, "post1"), weir.OutcomeRejected,
		"an editor has given the post of harbour-opens the slug renamed",
		"find read update restore")
	if len(cms.posts) != 1 || cms.posts["post1"]["slug"] != "renamed" {
		t.Errorf("got the posts %v, want one with the editor's slug", cms.posts)
	}

	clear(cms.posts)
	cms.page = ""
	removed := r.sendRemembering(article, "post1")
	checkResult(t, removed, weir.OutcomeDelivered, "", "find read find create publish")
	if !removed.IsForgotten || removed.RememberedID == "post1" {
		t.Errorf("got %+v, want the id of the removed post forgotten", removed)
	}
}
