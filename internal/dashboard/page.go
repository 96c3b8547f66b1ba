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

// page has the data of every page.
type page struct {
	Title   string
	Name    string // name in the navigation
	Theme   string // "light" or "dark"; "" = the browser's setting
	Now     time.Time
	Refresh bool     // elements with an id and data-live are updated while the page is open
	Fresh   bool     // the user asked for uncached data
	Notes   []string // notes for the operator
	Unread  []string // parts that could not be loaded
	Query   string   // text in the search field
	Styles  string   // address of the style sheet
	Script  string   // address of the script

	key   string // key of the function view, from the address
	known string // version of the body that the browser shows; it is set only in an update
	self  *url.URL
	code  int
	mu    sync.Mutex // guards Unread
}

func (d *Dashboard) newPage(r *http.Request, name string) *page {
	q := r.URL.Query()
	p := &page{Name: name, Now: d.Now().UTC(), key: q.Get("code"), known: q.Get("known"), self: r.URL,
		code:  http.StatusOK,
		Fresh: strings.Contains(r.Header.Get("Cache-Control"), "no-cache")}
	if theme := q.Get("theme"); theme == "light" || theme == "dark" {
		p.Theme = theme
	}
	p.Styles, p.Script = p.Link("/assets/app.css", "v", stamp), p.Link("/assets/app.js", "v", stamp)
	return p
}

func (p *page) status() int { return p.code }

// Link returns the address of a page below Base. The address has the parameters that the address of every page repeats,
// and the parameters in "params": each name is followed by its value. Link leaves out a parameter with an empty value.
func (p *page) Link(path string, params ...string) string { return p.pageURL(Base+path, params...) }

// API returns an address of the API, with the key and with params as in Link.
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

// With returns this page's address with one parameter changed. An empty value removes the parameter.
func (p *page) With(name, value string) string {
	q := p.self.Query()
	q.Del(name)
	q.Del("known")
	if value != "" {
		q.Set(name, value)
	}
	return joinURL(p.self.EscapedPath(), q)
}

// Hidden returns the parameters that a form has to repeat.
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

// Missed reports whether a part could not be loaded. The page must not show that part as empty.
func (p *page) Missed(what string) bool { return slices.Contains(p.Unread, what) }

func asError(err error) (*weir.Error, bool) {
	var e *weir.Error
	return e, errors.As(err, &e)
}
