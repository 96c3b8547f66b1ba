package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"weir/internal/weir"
)

// wordPress is a fake CMS. Its answers are copied from a real WordPress 6.1. The answers about
// images, and about posts in the trash, are from its source code.
type wordPress struct {
	liberties
	mu       sync.Mutex
	next     int                       // id of the newest post
	posts    map[string]map[string]any // by id; an image has the type "attachment"
	requests []string                  // such as "GET /path?query"
	isAway   bool                      // WordPress cannot reach its database
	hidden   bool                      // the user is not allowed to see the posts of other users
	blind    int                       // number of further look-ups of posts that find nothing
}

const wordPressAuth = "Basic d2VpcjphYmNkIGVmZ2g="

func newWordPress(slugs ...string) *wordPress {
	wp := &wordPress{posts: map[string]map[string]any{}}
	for _, slug := range slugs {
		wp.next += 3
		wp.posts[strconv.Itoa(wp.next)] = map[string]any{"slug": slug, "status": "draft"}
	}
	return wp
}

func (wp *wordPress) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	wp.mu.Lock()
	defer wp.mu.Unlock()
	wp.requests = append(wp.requests, r.Method+" "+r.URL.RequestURI())
	if wp.isAway {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, "<html><h1>Error establishing a database connection</h1></html>")
		return
	}

	kind, id, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/wp-json/wp/v2/"), "/")
	kind = map[string]string{"media": "attachment"}[kind]
	switch {
	case r.Header.Get("Authorization") != wordPressAuth:
		refuseUser(w, r)
	case id == "" && r.Method == http.MethodGet:
		wp.serveLookUp(w, r.URL.Query().Get("slug"), kind)
	case id == "":
		wp.next += 3
		replyWordPress(w, 201, wp.write(strconv.Itoa(wp.next), kind, r))
	case wp.posts[id] == nil:
		failWordPress(w, 404, "rest_post_invalid_id", "Invalid post ID.")
	case r.Method == http.MethodGet:
		replyWordPress(w, 200, map[string]any{"id": json.Number(id), "slug": wp.posts[id]["slug"],
			"status": wp.posts[id]["status"]})
	case r.Method == http.MethodDelete:
		delete(wp.posts, id)
		replyWordPress(w, 200, map[string]any{"deleted": true})
	default:
		replyWordPress(w, 200, wp.write(id, kind, r))
	}
}

func replyWordPress(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

func failWordPress(w http.ResponseWriter, status int, code, message string) {
	data := map[string]any{"status": status}
	replyWordPress(w, status, map[string]any{"code": code, "message": message, "data": data})
}

// refuseUser answers a request with a wrong password.
func refuseUser(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("status") != "any" {
		failWordPress(w, 401, "rest_cannot_edit", "Sorry, you are not allowed to edit this post.")
		return
	}

	replyWordPress(w, 400, map[string]any{"code": "rest_invalid_param",
		"message": "Invalid parameter(s): status",
		"data": map[string]any{"status": 400, "details": map[string]any{"status": map[string]any{
			"code": "rest_forbidden_status", "data": map[string]any{"status": 401}}}}})
}

// serveLookUp leaves out the posts in the trash, as WordPress does.
func (wp *wordPress) serveLookUp(w http.ResponseWriter, slug, kind string) {
	found := []any{}
	isBlind := kind == "" && wp.blind > 0
	if isBlind {
		wp.blind--
	}

	ids := slices.SortedFunc(maps.Keys(wp.posts), func(a, b string) int {
		return strings.Compare(fmt.Sprint(wp.posts[a]["slug"]), fmt.Sprint(wp.posts[b]["slug"]))
	})
	for _, id := range ids {
		post := wp.posts[id]
		if !isBlind && kindOf(post) == kind && post["status"] != "trash" &&
			wp.finds(post["slug"], slug) {
			found = append(found, map[string]any{"id": json.Number(id), "slug": post["slug"]})
		}
	}

	w.Header().Set("X-WP-Total", strconv.Itoa(len(found)))
	if wp.hidden {
		found = []any{}
	}

	replyWordPress(w, 200, found)
}

func kindOf(post map[string]any) string {
	kind, _ := post["type"].(string)
	return kind
}

// write stores the fields of a request.
func (wp *wordPress) write(id, kind string, r *http.Request) map[string]any {
	fields := map[string]any{}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
		_ = r.ParseMultipartForm(1 << 20)
		for name, values := range r.MultipartForm.Value {
			fields[name] = values[0]
		}
	} else {
		_ = json.NewDecoder(r.Body).Decode(&fields)
	}

	if wp.posts[id] == nil {
		wp.posts[id] = map[string]any{}
		if kind != "" {
			fields["type"], fields["status"] = kind, "inherit"
		}
	}

	maps.Copy(wp.posts[id], fields)
	post := wp.posts[id]
	post["slug"] = wp.makeUnique(id, post)
	if post["status"] == "publish" || post["status"] == "inherit" {
		wp.recordPublished(post["slug"])
	}

	return map[string]any{"id": json.Number(id), "slug": post["slug"]}
}

var digitsAlone = regexp.MustCompile(`^[0-9]+$`)

// makeUnique adds a number to a slug that another post has, that consists of digits alone, or that
// WordPress keeps for its feeds. WordPress reports no error. It does not do so for drafts.
func (wp *wordPress) makeUnique(id string, post map[string]any) string {
	slug := fmt.Sprint(post["slug"])
	if post["status"] == "draft" || post["status"] == "trash" {
		return slug
	}
	if wp.rename != nil && !strings.HasSuffix(slug, "-2") {
		return wp.storedSlug(slug)
	}

	for n := 1; ; n++ {
		candidate := slug
		if n > 1 {
			candidate = fmt.Sprintf("%s-%d", slug, n)
		}

		taken := n == 1 && (digitsAlone.MatchString(slug) || slug == "rss")
		for other, p := range wp.posts {
			sharesSlugs := kindOf(post) != "" || kindOf(p) == ""
			taken = taken || other != id && sharesSlugs && p["slug"] == candidate
		}

		if !taken {
			return candidate
		}
	}
}

func (wp *wordPress) listArticles() (states []string) {
	for _, post := range wp.posts {
		states = append(states, nameState(post["status"] == "publish"))
	}
	return states
}

func (wp *wordPress) snapshot() map[string]string { return printItems(wp.posts) }

func openWordPress(t *testing.T, wp *wordPress, password string) *recipe {
	t.Helper()
	return openRecipe(
		t,
		"wordpress",
		wp,
		map[string]string{"WORDPRESS_URL": "", "WORDPRESS_USER": "weir",
			"WORDPRESS_PASSWORD": password},
	)
}

func TestRecipe_WordPress(t *testing.T) {
	t.Parallel()
	wp := newWordPress()
	r := openWordPress(t, wp, "abcd efgh")
	article := r.readSample("article.xml")
	for range 2 {
		if got := r.sendBody(article); got.Outcome != weir.OutcomeDelivered {
			t.Fatalf("got %+v, want the outcome delivered", got)
		}
	}

	want := map[string]any{"slug": "harbour-opens",
		"title":    `The harbour opens & the "old" quay stays`,
		"content":  "<p>From Monday on.</p><p>More <b>soon</b>.<br/></p>",
		"date_gmt": "2026-01-31T08:00:00",
		"status":   "publish"}
	if len(wp.posts) != 1 || fmt.Sprint(wp.posts["3"]) != fmt.Sprint(want) {
		t.Errorf("got the posts %v, want one post %v", wp.posts, want)
	}

	if got := strings.Join(wp.requests, "\n"); !strings.Contains(got,
		"POST /wp-json/wp/v2/posts?_fields=id,slug\n"+
			"PUT /wp-json/wp/v2/posts/3?_fields=id,slug\n") ||
		!strings.HasSuffix(got, "PUT /wp-json/wp/v2/posts/3?_fields=id,slug") {
		t.Errorf("got the requests\n%s\nwant the POST of the post, the PUT that publishes it, and the PUT of the "+
			"update last", got)
	}

	for range 2 {
		if got := r.sendBody(r.readSample("delete.xml")); got.Outcome != weir.OutcomeDelivered ||
			len(wp.posts) != 0 {
			t.Errorf("delete: got %+v and the posts %v, want the outcome delivered and no post",
				got, wp.posts)
		}
	}
}

func TestRecipe_WordPressRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wp       *wordPress
		slug     string
		password string
		want     weir.Outcome
		reason   string
		posts    int
	}{
		"DigitsAlone": {
			newWordPress(), "8888", "abcd efgh", weir.OutcomeRejected,
			"WordPress changes a slug of digits alone: 8888",
			0,
		},
		"NotASlug": {newWordPress(), "Ünser Text", "abcd efgh", weir.OutcomeRejected,
			"write unser-text", 0},
		"WrongPassword": {
			newWordPress(), "news-1", "wrong", weir.OutcomeUnavailable,
			"WordPress does not know the user", 0,
		},
		"DatabaseAway": {
			&wordPress{isAway: true}, "news-1", "abcd efgh", weir.OutcomeUnavailable,
			"WordPress cannot reach its database", 0,
		},
		"NotAllowedToSee": {
			&wordPress{posts: map[string]map[string]any{"1": {"slug": "news-1"}}, hidden: true},
			"news-1", "abcd efgh",
			weir.OutcomeUnavailable, "the user may not see it", 1,
		},
		"TwiceThere": {
			newWordPress("news-1", "news-1"), "news-1", "abcd efgh", weir.OutcomeRejected,
			"is there 2 times", 2,
		},
		"Feed": {
			newWordPress(), "rss", "abcd efgh", weir.OutcomeRejected,
			"WordPress made rss-2 of the slug rss: WordPress keeps this slug for its feeds", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := openWordPress(
				t,
				c.wp,
				c.password,
			).sendBody(`<article slug="` + c.slug + `" version="1"><title>A</title></article>`)
			if got.Outcome != c.want || !strings.Contains(got.Reason, c.reason) ||
				len(c.wp.posts) != c.posts {
				t.Errorf("got %+v and %d posts, want %s with %q and %d posts", got, len(c.wp.posts),
					c.want, c.reason, c.posts)
			}
		})
	}
}

// Another program can take the slug between the look-up and the create. A post and an image can
// have the same slug only if the image was there first, and no look-up of images finds a post.
func TestRecipe_WordPressSlugIsTaken(t *testing.T) {
	t.Parallel()
	wp := newWordPress("harbour-opens", "harbour-at-dawn")
	before := wp.snapshot()
	r := openWordPress(t, wp, "abcd efgh")
	for range 2 {
		wp.blind = 1
		checkResult(t, r.sendBody(r.readSample("article.xml")), weir.OutcomeRejected,
			"WordPress made harbour-opens-2 of the slug harbour-opens: another post has it",
			"find create undo")
		checkResult(t, r.sendBody(r.readSample("image.xml")), weir.OutcomeRejected,
			"WordPress made harbour-at-dawn-2 of the slug harbour-at-dawn", "find upload undo")
	}

	if got := wp.snapshot(); !maps.Equal(got, before) {
		t.Errorf("got the posts %v, want %v as before", got, before)
	}
}

// An editor can give a post another slug, or put it into the trash.
func TestRecipe_WordPressRenamed(t *testing.T) {
	t.Parallel()
	wp := newWordPress()
	r := openWordPress(t, wp, "abcd efgh")
	article := r.readSample("article.xml")
	if got := r.sendBody(article); got.RememberedID != "3" {
		t.Fatalf("got %+v, want the id 3 remembered", got)
	}

	wp.posts["3"]["slug"] = "renamed"
	checkResult(t, r.sendRemembering(article, "3"), weir.OutcomeDelivered, "", "find read update")
	checkOneArticle(t, wp)
	if wp.posts["3"]["slug"] != "harbour-opens" {
		t.Errorf("got the post %v, want its slug back", wp.posts["3"])
	}

	wp.posts["3"]["slug"] = "renamed"
	wp.posts["4"] = map[string]any{"slug": "harbour-opens", "status": "publish"}
	wp.blind = 1
	checkResult(t, r.sendRemembering(article, "3"), weir.OutcomeRejected,
		"an editor has given the post of harbour-opens the slug renamed",
		"find read update restore")
	if wp.posts["3"]["slug"] != "renamed" {
		t.Errorf("got the post %v, want the editor's slug", wp.posts["3"])
	}

	delete(wp.posts, "4")
	wp.posts["3"]["status"] = "trash"
	removed := r.sendRemembering(article, "3")
	checkResult(t, removed, weir.OutcomeDelivered, "", "find read find create publish")
	if !removed.IsForgotten || removed.RememberedID == "3" {
		t.Errorf("got %+v, want the id of the removed post forgotten", removed)
	}
}
