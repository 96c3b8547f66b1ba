package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"weir/internal/weir"
)

// wordPress is a fake CMS. Its answers are copied from a real WordPress 6.1.
type wordPress struct {
	mu       sync.Mutex
	next     int                    // id of the newest post
	posts    map[int]map[string]any // by id
	requests []string               // such as "GET /path?query"
	isAway   bool                   // WordPress cannot reach its database
	hidden   bool                   // the user is not allowed to see the posts of other users
}

const wordPressAuth = "Basic d2VpcjphYmNkIGVmZ2g="

func (wp *wordPress) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	wp.mu.Lock()
	defer wp.mu.Unlock()
	wp.requests = append(wp.requests, r.Method+" "+r.URL.RequestURI())
	reply := func(status int, value any) {
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(value)
	}
	fail := func(status int, code, message string) {
		reply(status, map[string]any{"code": code, "message": message, "data": map[string]any{"status": status}})
	}
	if wp.isAway {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, "<html><h1>Error establishing a database connection</h1></html>")
		return
	}
	signedIn := r.Header.Get("Authorization") == wordPressAuth
	path := strings.TrimPrefix(r.URL.Path, "/wp-json/wp/v2/posts")
	switch r.Method {
	case http.MethodGet:
		if !signedIn && r.URL.Query().Get("status") == "any" {
			reply(400, map[string]any{"code": "rest_invalid_param", "message": "Invalid parameter(s): status",
				"data": map[string]any{"status": 400, "details": map[string]any{"status": map[string]any{
					"code": "rest_forbidden_status", "data": map[string]any{"status": 401}}}}})
			return
		}
		found := []any{}
		for id, post := range wp.posts {
			if post["slug"] == r.URL.Query().Get("slug") {
				found = append(found, map[string]any{"id": id, "slug": post["slug"]})
			}
		}
		w.Header().Set("X-WP-Total", strconv.Itoa(len(found)))
		if wp.hidden {
			found = []any{}
		}
		reply(200, found)
		return
	case http.MethodPost:
		if !signedIn {
			fail(401, "rest_cannot_create", "Sorry, you are not allowed to create posts as this user.")
			return
		}
		wp.next += 3
		reply(201, wp.write(wp.next, r))
		return
	}
	id, err := strconv.Atoi(strings.TrimPrefix(path, "/"))
	switch {
	case !signedIn:
		fail(401, "rest_cannot_edit", "Sorry, you are not allowed to edit this post.")
	case err != nil || wp.posts[id] == nil:
		fail(404, "rest_post_invalid_id", "Invalid post ID.")
	case r.Method == http.MethodDelete:
		delete(wp.posts, id)
		reply(200, map[string]any{"deleted": true})
	default:
		reply(200, wp.write(id, r))
	}
}

var digitsAlone = regexp.MustCompile(`^[0-9]+$`)

// write stores a post. Like WordPress, it adds a number to a slug that another post has or that consists of digits
// alone. It reports no error.
func (wp *wordPress) write(id int, r *http.Request) map[string]any {
	post := map[string]any{}
	_ = json.NewDecoder(r.Body).Decode(&post)
	slug, _ := post["slug"].(string)
	for n := 1; ; n++ {
		candidate := slug
		if n > 1 {
			candidate = fmt.Sprintf("%s-%d", slug, n)
		}
		taken := n == 1 && digitsAlone.MatchString(slug)
		for other, p := range wp.posts {
			taken = taken || other != id && p["slug"] == candidate
		}
		if !taken {
			post["slug"] = candidate
			break
		}
	}
	if wp.posts == nil {
		wp.posts = map[int]map[string]any{}
	}
	wp.posts[id] = post
	return map[string]any{"id": id, "slug": post["slug"]}
}

func openWordPress(t *testing.T, wp *wordPress, password string) *recipe {
	t.Helper()
	return openRecipe(
		t,
		"wordpress",
		wp,
		map[string]string{"WORDPRESS_URL": "", "WORDPRESS_USER": "weir", "WORDPRESS_PASSWORD": password},
	)
}

func TestRecipe_WordPress(t *testing.T) {
	t.Parallel()
	wp := &wordPress{}
	r := openWordPress(t, wp, "abcd efgh")
	article := r.readSample("article.xml")
	for range 2 {
		if got := r.sendBody(article); got.Outcome != weir.OutcomeDelivered {
			t.Fatalf("got %+v, want the outcome delivered", got)
		}
	}
	want := map[string]any{"slug": "harbour-opens", "title": `The harbour opens & the "old" quay stays`,
		"content": "<p>From Monday on.</p><p>More <b>soon</b>.<br/></p>", "date_gmt": "2026-01-31T08:00:00",
		"status": "publish"}
	if len(wp.posts) != 1 || fmt.Sprint(wp.posts[3]) != fmt.Sprint(want) {
		t.Errorf("got the posts %v, want one post %v", wp.posts, want)
	}
	if got := strings.Join(wp.requests, "\n"); !strings.Contains(got, "POST /wp-json/wp/v2/posts?_fields=id,slug\n") ||
		!strings.HasSuffix(got, "PUT /wp-json/wp/v2/posts/3?_fields=id,slug") {
		t.Errorf("got the requests\n%s\nwant the POST of the post, and its PUT last", got)
	}
	for range 2 {
		if got := r.sendBody(r.readSample("delete.xml")); got.Outcome != weir.OutcomeDelivered || len(wp.posts) != 0 {
			t.Errorf("delete: got %+v and the posts %v, want the outcome delivered and no post", got, wp.posts)
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
			&wordPress{}, "8888", "abcd efgh", weir.OutcomeRejected, "WordPress changes a slug of digits alone: 8888",
			0,
		},
		"NotASlug": {&wordPress{}, "Ünser Text", "abcd efgh", weir.OutcomeRejected, "write unser-text", 0},
		"WrongPassword": {
			&wordPress{}, "news-1", "wrong", weir.OutcomeUnavailable, "WordPress does not know the user", 0,
		},
		"DatabaseAway": {
			&wordPress{isAway: true}, "news-1", "abcd efgh", weir.OutcomeUnavailable,
			"WordPress cannot reach its database", 0,
		},
		"NotAllowedToSee": {
			&wordPress{posts: map[int]map[string]any{1: {"slug": "news-1"}}, hidden: true}, "news-1", "abcd efgh",
			weir.OutcomeUnavailable, "the user may not see it", 1,
		},
		"TwiceThere": {
			&wordPress{posts: map[int]map[string]any{1: {"slug": "news-1"}, 2: {"slug": "news-1"}}}, "news-1",
			"abcd efgh", weir.OutcomeRejected, "is there 2 times", 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := openWordPress(
				t,
				c.wp,
				c.password,
			).sendBody(`<article slug="` + c.slug + `" version="1"><title>A</title></article>`)
			if got.Outcome != c.want || !strings.Contains(got.Reason, c.reason) || len(c.wp.posts) != c.posts {
				t.Errorf("got %+v and %d posts, want %s with %q and %d posts", got, len(c.wp.posts), c.want, c.reason,
					c.posts)
			}
		})
	}
}
