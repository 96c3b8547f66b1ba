package realcms

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Post is an item in the database of a CMS: a post of WordPress, an article of Directus, or a page
// of MediaWiki.
type Post struct {
	ID      string `json:"id"`
	Slug    string `json:"slug"`
	Status  string `json:"status"`
	Title   string `json:"title"`
	Content string `json:"content"`
}

// Posts returns the posts whose slug has the prefix, in the order of creation. It reads the
// database, because the tests do not trust WordPress's own look-ups.
func (wp *WordPress) Posts(ctx context.Context, prefix string) ([]Post, error) {
	if !isPrefix(prefix) {
		return nil, fmt.Errorf("%q is no prefix of a slug", prefix)
	}

	out, err := wp.database.runSQL(ctx, "wordpress", "SELECT JSON_OBJECT('id', CAST(ID AS CHAR), "+
		"'slug', post_name, 'status', post_status, 'title', post_title, 'content', post_content) "+
		"FROM wp_posts WHERE post_type = 'post' AND "+
		"post_status <> 'auto-draft' AND post_name LIKE '"+prefix+"%' ORDER BY ID")
	if err != nil {
		return nil, err
	}

	return readPosts(out)
}

// isPrefix reports whether a text needs no escapes in a LIKE pattern of SQL.
func isPrefix(text string) bool { return !strings.ContainsAny(text, `'"\%_`) }

// readPosts parses the rows of a query. Each row is one line with a JSON object.
func readPosts(rows string) ([]Post, error) {
	var posts []Post
	for row := range strings.Lines(rows) {
		if strings.TrimSpace(row) == "" {
			continue
		}

		var p Post
		if err := json.Unmarshal([]byte(row), &p); err != nil {
			return nil, fmt.Errorf("a row of the CMS's database: %w", err)
		}

		posts = append(posts, p)
	}

	return posts, nil
}

// Tally compares the items of a CMS with the messages of a Race, which should have made the items.
// WordPress adds a number to a slug that is taken, for example a-news-2 for a-news. Such an item
// counts for the slug a-news, but is not an exact item of this slug.
type Tally struct {
	Slugs   int // number of slugs in the race
	Items   int // number of items that the CMS has for these slugs
	Surplus int // number of items that the CMS has in addition to the first item of each slug
	Missing int // number of slugs without an exact item
	Stale   int // number of slugs with exact items, none of which has the newest version
}

// IsClean reports whether each slug has one exact item with the newest version, and no other item.
func (t Tally) IsClean() bool { return t == Tally{Slugs: t.Slugs, Items: t.Slugs} }

// numbered matches the number that WordPress adds to a slug that is taken.
var numbered = regexp.MustCompile(`-\d+$`)

// TallyPosts compares posts with the messages of a race. It ignores posts of other slugs.
func TallyPosts(race Race, posts []Post) Tally {
	t := Tally{Slugs: race.Slugs}
	counts, newest := map[string]int{}, map[string]bool{}
	exact := map[string]bool{}
	for _, p := range posts {
		base := numbered.ReplaceAllString(p.Slug, "")
		counts[base]++
		if base == p.Slug {
			exact[base] = true
			newest[base] = newest[base] || VersionOf(p.Title) == race.Versions
		}
	}

	for n := range race.Slugs {
		slug := race.Slug(n)
		t.Items += counts[slug]
		t.Surplus += max(0, counts[slug]-1)
		if !exact[slug] {
			t.Missing++
		} else if !newest[slug] {
			t.Stale++
		}
	}

	return t
}
