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

// Race is a burst of messages: concurrent clients send the versions of many slugs.
type Race struct {
	Prefix   string // prefix of the slugs
	Slugs    int    // number of slugs
	Versions int    // each slug has the versions 1 to Versions
	Clients  int
}

// Slug returns the slug with the number n, counted from 0.
func (r Race) Slug(n int) string { return fmt.Sprintf("%s-%02d-news", r.Prefix, n) }

// Messages returns the number of messages in the race.
func (r Race) Messages() int { return r.Slugs * r.Versions }

// Run calls send for each message of the race, from Clients goroutines at the same time. The
// goroutines take the messages of a slug in the order of the versions, but can send several of
// these messages at the same time.
//
// An editor often saves an item more than once. So Run takes one to three versions of one slug, and
// then continues with a random slug. The random order is the same in each run.
//
// Run returns the errors of send. If ctx ends before all messages are taken, Run also returns the
// error of ctx.
func (r Race) Run(ctx context.Context,
	send func(ctx context.Context, slug string, version int) error) []error {
	work := make(chan raceMessage)
	var mu sync.Mutex
	var problems []error
	var wg sync.WaitGroup
	for range r.Clients {
		wg.Go(func() {
			for m := range work {
				if err := send(ctx, m.slug, m.version); err != nil {
					mu.Lock()
					problems = append(problems,
						fmt.Errorf("%s version %d: %w", m.slug, m.version, err))
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

// maxInRow is the highest number of versions that Run takes from one slug in a row.
const maxInRow = 3

type raceMessage struct {
	slug    string
	version int
}

// feedWork sends all messages to the channel, and then closes the channel. If ctx ends before all
// messages are sent, feedWork returns the error of ctx.
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

const titleBreak = ", version "

// TitleOf returns the title for a version of a slug. WordPressClient and TallyPosts read a post's
// version from its title.
func TitleOf(slug string, version int) string { return slug + titleBreak + strconv.Itoa(version) }

// VersionOf returns the version in a title that TitleOf made. For any other title it returns 0.
func VersionOf(title string) int {
	_, text, _ := strings.Cut(title, titleBreak)
	version, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return version
}

// SlugOf returns the slug in a title that TitleOf made.
func SlugOf(title string) string {
	slug, _, _ := strings.Cut(title, titleBreak)
	return slug
}

// ArticleOf returns the XML body of the message that posts a version of a slug to Weir.
func ArticleOf(slug string, version int) string {
	return fmt.Sprintf(`<article slug="%s" version="%d"><title>%s</title><body><p>%s</p></body></article>`, slug,
		version, TitleOf(slug, version), bodyOf(version))
}

// PageOf returns the XML body of the message that posts a version of a page to Weir, for a wiki
// whose pages have only a name and a text. The text begins with the title.
func PageOf(slug string, version int) string {
	return fmt.Sprintf("<article version=\"%d\"><title>%s</title><summary>%d</summary><text>%s\n\n%s</text></article>",
		version, slug, version, TitleOf(slug, version), bodyOf(version))
}

func bodyOf(version int) string { return fmt.Sprintf("This is text number %d.", version) }

// WordPressClient writes posts by WordPress's REST API without Weir. It looks for a post of the
// slug before it creates a post, as a careful integration does. It is safe for concurrent use.
type WordPressClient struct {
	URL, User, Password string
	HTTP                *http.Client // nil = http.DefaultClient
}

// Upsert writes one version of the slug's post. It writes nothing if the post has the same version
// or a newer one.
func (c *WordPressClient) Upsert(ctx context.Context, slug string, version int) error {
	var found []struct {
		ID    int                  `json:"id"`
		Title struct{ Raw string } `json:"title"`
	}
	if err := c.callAPI(ctx, http.MethodGet,
		"posts?status=any&context=edit&_fields=id,title&slug="+url.QueryEscape(
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

	return c.callAPI(ctx, http.MethodPut,
		fmt.Sprintf("posts/%d?_fields=id", found[0].ID), post, nil)
}

// callAPI makes one request. body and answer can be nil.
func (c *WordPressClient) callAPI(ctx context.Context, method, path string, body,
	answer any) error {
	signIn := base64.StdEncoding.EncodeToString([]byte(c.User + ":" + c.Password))
	header := http.Header{"Authorization": {"Basic " + signIn}}
	return callJSON(ctx, c.HTTP, method, c.URL+"/wp-json/wp/v2/"+path, header, body, answer)
}
