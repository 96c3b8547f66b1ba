package dashboard

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/internal/weir"
)

// page has the data that all pages need.
type page struct {
	Title   string
	Name    string // name of the page's template
	Theme   string // "light" or "dark"; "" = the browser's setting
	Now     time.Time
	Refresh bool     // the script updates elements with an id and data-live while the page is open
	Fresh   bool     // the user asked for uncached data
	Notes   []string // notes for the operator
	Unread  []string // parts that could not be loaded
	Query   string   // text in the search field
	Styles  string   // address of the style sheet
	Script  string   // address of the script
	SignOut string   // path of the sign-out; "" = none
	Proof   string   // proof that the operator has signed in; "" = none

	key string // key of functions/view, from the address
	// version of the message's body that the browser shows; "" = the browser shows no body yet
	known string
	self  *url.URL
	code  int
	mu    sync.Mutex // guards Unread
	held  []func()   // free the memory that the page holds until it is written
}

// releaseAll frees the memory that the page holds.
func (p *page) releaseAll() {
	for _, release := range p.held {
		release()
	}
}

func (d *Dashboard) newPage(r *http.Request, name string) *page {
	q := r.URL.Query()
	p := &page{Name: name, Now: d.Now().UTC(), key: q.Get("code"), known: q.Get("known"),
		self: r.URL, code: http.StatusOK,
		Fresh: strings.Contains(r.Header.Get("Cache-Control"), "no-cache")}
	if theme := q.Get("theme"); theme == "light" || theme == "dark" {
		p.Theme = theme
	}

	if p.key == "" { // a key in the address needs no cookie
		p.SignOut = d.SignOut
	}

	if d.ProofFor != nil {
		p.Proof = d.ProofFor(r)
	}

	p.Styles, p.Script = p.Link("/assets/app.css", "v", stamp), p.Link("/assets/app.js", "v", stamp)

	return p
}

func (p *page) status() int { return p.code }

// Link returns the address of a page. The argument "path" is the page's path below Base. params are
// pairs of a name and a value. Link leaves out a pair with an empty value, and adds the key and the
// theme.
func (p *page) Link(path string, params ...string) string { return p.pageURL(Base+path, params...) }

// API returns the address of an API path, with the key. For params, see Link.
func (p *page) API(path string, params ...string) string {
	q := queryValues(params)
	if p.key != "" {
		q.Set("code", p.key)
	}
	return joinURL("/api"+path, q)
}

func (p *page) pageURL(path string, params ...string) string {
	q := queryValues(params)
	if p.key != "" {
		q.Set("code", p.key)
	}

	if p.Theme != "" {
		q.Set("theme", p.Theme)
	}

	return joinURL(path, q)
}

func queryValues(params []string) url.Values {
	q := url.Values{}
	for pair := range slices.Chunk(params, 2) {
		if len(pair) == 2 && pair[1] != "" {
			q.Set(pair[0], pair[1])
		}
	}
	return q
}

func joinURL(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// With returns this page's address with one parameter changed. An empty value removes the
// parameter.
func (p *page) With(name, value string) string {
	q := p.self.Query()
	q.Del(name)
	q.Del("known")
	if value != "" {
		q.Set(name, value)
	}
	return joinURL(p.self.EscapedPath(), q)
}

// Hidden returns the parameters that a form must send in hidden fields: the key and the theme.
func (p *page) Hidden() map[string]string {
	hidden := map[string]string{}
	if p.key != "" {
		hidden["code"] = p.key
	}

	if p.Theme != "" {
		hidden["theme"] = p.Theme
	}

	return hidden
}

func (p *page) noteUnread(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Unread = append(p.Unread, what)
	slices.Sort(p.Unread)
}

// Missed reports whether the named part could not be loaded. The page must not show such a part as
// empty.
func (p *page) Missed(what string) bool { return slices.Contains(p.Unread, what) }

func asError(err error) (*weir.Error, bool) {
	var e *weir.Error
	return e, errors.As(err, &e)
}
