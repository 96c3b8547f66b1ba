package realcms

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// Race is a burst of messages: many clients at once send versions of many slugs.
type Race struct {
	Prefix   string // prefix of the slugs
	Slugs    int    // number of slugs
	Versions int    // number of versions of each slug
	Clients  int
}

// Slug returns the slug of a number. The numbers begin with 0.
func (r Race) Slug(n int) string { return fmt.Sprintf("%s-%02d-news", r.Prefix, n) }

// Messages returns how many messages the race has.
func (r Race) Messages() int { return r.Slugs * r.Versions }

// Run calls send for each message of the race. A client that is free takes the next message. The messages of a slug
// are taken in the order of their versions, but several clients may send them at the same time. An editor often saves
// an item more than once. So the race has one to three versions of a slug one after the other, and then goes on with
// a slug at random. The random order is the same in each run. Run returns the errors of send, and the error of ctx if
// ctx ends before all messages are taken.
func (r Race) Run(ctx context.Context, send func(ctx context.Context, slug string, version int) error) []error {
	work := make(chan raceMessage)
	var mu sync.Mutex
	var problems []error
	var wg sync.WaitGroup
	for range r.Clients {
		wg.Go(func() {
			for m := range work {
				if err := send(ctx, m.slug, m.version); err != nil {
					mu.Lock()
					problems = append(problems, fmt.Errorf("%s version %d: %w", m.slug, m.version, err))
					mu.Unlock()
				}
			}
		})
	}
	stopped := r.feedWork(ctx, work)
	wg.Wait()
	if stopped != nil {
		problems = append(problems, stopped)
	}
	return problems
}

// maxInRow is the highest number of versions of a slug that the race has one after the other.
const maxInRow = 3

type raceMessage struct {
	slug    string
	version int
}

// feedWork puts all messages into work, and then closes it. If ctx ends before all messages are in work, feedWork
// returns the error of ctx.
func (r Race) feedWork(ctx context.Context, work chan<- raceMessage) error {
	defer close(work)
	random := rand.New(rand.NewPCG(1, 1))
	sent := make([]int, r.Slugs)
	for left := r.Messages(); left > 0; {
		n := random.IntN(r.Slugs)
		for range min(1+random.IntN(maxInRow), r.Versions-sent[n]) {
			sent[n]++
			left--
			select {
			case work <- raceMessage{r.Slug(n), sent[n]}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// titleBreak separates slug and version in a title.
const titleBreak = ", version "

// TitleOf returns the title of a version. WordPressClient and TallyPosts read the version of a post from its title.
func TitleOf(slug string, version int) string { return slug + titleBreak + strconv.Itoa(version) }

// VersionOf returns the version in a title that TitleOf made; 0 = TitleOf did not make the title.
func VersionOf(title string) int {
	_, text, _ := strings.Cut(title, titleBreak)
	version, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return version
}

// ArticleOf returns the body of the message that carries a version of a slug to Weir.
func ArticleOf(slug string, version int) string {
	return fmt.Sprintf(`<article slug="%s" version="%d"><title>%s</title><body><p>%s</p></body></article>`, slug,
		version, TitleOf(slug, version), bodyOf(version))
}

func bodyOf(version int) string { return fmt.Sprintf("This is text number %d.", version) }

// WordPressClient writes posts by the REST API without Weir, as a careful integration does. It looks the slug up. If
// there is no post, it creates the post. Otherwise it updates the post, unless the post has the same version or a
// newer one. Safe for concurrent use.
type WordPressClient struct {
	URL, User, Password string
	HTTP                *http.Client // nil = http.DefaultClient
}

// Upsert writes one version, unless the post has that version or a newer one.
func (c *WordPressClient) Upsert(ctx context.Context, slug string, version int) error {
	var found []struct {
		ID    int                  `json:"id"`
		Title struct{ Raw string } `json:"title"`
	}
	if err := c.callAPI(ctx, http.MethodGet, "posts?status=any&context=edit&_fields=id,title&slug="+url.QueryEscape(
		slug),
		nil, &found); err != nil {
		return err
	}
	post := map[string]string{"slug": slug, "title": TitleOf(slug, version),
		"content": "<p>" + bodyOf(version) + "</p>", "status": "publish"}
	if len(found) == 0 {
		return c.callAPI(ctx, http.MethodPost, "posts?_fields=id", post, nil)
	}
	if VersionOf(found[0].Title.Raw) >= version {
		return nil
	}
	return c.callAPI(ctx, http.MethodPut, fmt.Sprintf("posts/%d?_fields=id", found[0].ID), post, nil)
}

// callAPI makes one request; body and answer may be nil.
func (c *WordPressClient) callAPI(ctx context.Context, method, path string, body, answer any) error {
	signIn := base64.StdEncoding.EncodeToString([]byte(c.User + ":" + c.Password))
	header := http.Header{"Authorization": {"Basic " + signIn}}
	return callJSON(ctx, c.HTTP, method, c.URL+"/wp-json/wp/v2/"+path, header, body, answer)
}
