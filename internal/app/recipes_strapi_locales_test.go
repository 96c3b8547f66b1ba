package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/internal/weir"
)

// strapiLocales is a fake CMS. It answers as Strapi 5.54 does for a localized collection type: a
// document has a draft for each language, and perhaps a published entry. A POST makes a new
// document.
type strapiLocales struct {
	liberties
	mu    sync.Mutex
	next  int                       // number of the newest document
	draft map[string]map[string]any // by "documentId locale"
	live  map[string]map[string]any // by "documentId locale"
	// before is called one time, before the next request of this method; nil = no call
	before map[string]func()
}

func newStrapiLocales(slugs ...string) *strapiLocales {
	s := &strapiLocales{draft: map[string]map[string]any{}, live: map[string]map[string]any{},
		before: map[string]func(){}}
	for _, slug := range slugs {
		s.next++
		s.draft[fmt.Sprintf("document%d en", s.next)] = map[string]any{"slug": slug}
	}
	return s
}

func (s *strapiLocales) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	call := s.before[r.Method]
	delete(s.before, r.Method)
	s.mu.Unlock()
	if call != nil {
		call()
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	id := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/articles"), "/")
	isDraft, locale := r.URL.Query().Get("status") == "draft", r.URL.Query().Get("locale")
	switch {
	case r.Header.Get("Authorization") != "Bearer "+tokenOfStrapi:
		failStrapi(w, 401, "UnauthorizedError", "Missing or invalid credentials")
	case r.Method == http.MethodGet:
		s.serveLookUp(w, r, isDraft)
	case r.Method == http.MethodDelete:
		delete(s.draft, id+" "+locale)
		delete(s.live, id+" "+locale)
		w.WriteHeader(http.StatusNoContent)

	case r.Method == http.MethodPut && !s.hasDocument(id):
		failStrapi(w, 404, "NotFoundError", "Not Found")
	default:
		s.write(w, r, id, locale, isDraft)
	}
}

func (s *strapiLocales) serveLookUp(w http.ResponseWriter, r *http.Request, isDraft bool) {
	entries := s.live
	if isDraft {
		entries = s.draft
	}

	found := []any{}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		id, locale, _ := strings.Cut(key, " ")
		if s.finds(entries[key]["slug"], r.URL.Query().Get("filters[slug][$eq]")) {
			found = append(found,
				map[string]any{"documentId": id, "slug": entries[key]["slug"], "locale": locale})
		}
	}

	replyStrapi(w, 200, map[string]any{"data": found})
}

func (s *strapiLocales) hasDocument(id string) bool {
	for key := range s.draft {
		if strings.HasPrefix(key, id+" ") {
			return true
		}
	}
	return false
}

func (s *strapiLocales) write(w http.ResponseWriter, r *http.Request, id, locale string,
	isDraft bool) {
	var body struct{ Data map[string]any }
	_ = json.NewDecoder(r.Body).Decode(&body)

	if !isDraft && body.Data["title"] == "refused" {
		failStrapi(w, 400, "ValidationError", "title must be at least 20 characters", "title")
		return
	}

	status := 200
	if r.Method == http.MethodPost {
		s.next++
		id, status = fmt.Sprint("document", s.next), 201
		body.Data["slug"] = s.storedSlug(body.Data["slug"])
	}

	s.draft[id+" "+locale] = body.Data
	if !isDraft {
		s.live[id+" "+locale] = maps.Clone(body.Data)
		s.recordPublished(body.Data["slug"])
	}

	replyStrapi(w, status, map[string]any{"data": map[string]any{"documentId": id, "slug": body.Data["slug"],
		"locale": locale}})
}

func (s *strapiLocales) listArticles() (states []string) {
	for key := range s.draft {
		states = append(states, nameState(s.live[key] != nil))
	}
	return states
}

func (s *strapiLocales) snapshot() map[string]string {
	printed := printItems(s.draft)
	for key, entry := range s.live {
		printed[key] += fmt.Sprint(", published: ", entry)
	}
	return printed
}

func openStrapiLocales(t *testing.T, cms http.Handler) *recipe {
	t.Helper()
	return openRecipe(t, "strapi-locales", cms,
		map[string]string{"STRAPI_URL": "", "STRAPI_TOKEN": tokenOfStrapi})
}

// listLive returns the published entries, as "documentId locale title".
func (s *strapiLocales) listLive() (entries []string) {
	for _, key := range slices.Sorted(maps.Keys(s.live)) {
		entries = append(entries, fmt.Sprint(key, " ", s.live[key]["title"]))
	}
	return entries
}

const (
	inEnglish = `<article slug="pier" lang="en" version="5"><title>Pier</title></article>`
	inGerman  = `<article slug="pier" lang="de" version="3"><title>Mole</title></article>`
)

// The languages of a slug are entries of one document, in whatever order their messages come. A
// delete removes one language.
func TestRecipe_StrapiLocales(t *testing.T) {
	t.Parallel()
	cms := newStrapiLocales()
	r := openStrapiLocales(t, cms)
	checkResult(t, r.sendBody(inEnglish), weir.OutcomeDelivered, "", "find live create twin update")
	checkResult(t, r.sendBody(inGerman), weir.OutcomeDelivered, "", "find update")
	checkResult(t, r.sendBody(inGerman), weir.OutcomeDelivered, "", "find update")

	if got := cms.listLive(); !slices.Equal(got,
		[]string{"document1 de Mole", "document1 en Pier"}) {
		t.Errorf("got the entries %q, want one document with both languages", got)
	}

	checkResult(t, r.sendBody(`<delete slug="pier" lang="en"/>`), weir.OutcomeDelivered, "",
		"find remove")
	checkResult(t, r.sendBody(`<delete slug="pier" lang="en"/>`), weir.OutcomeDelivered, "", "find")
	if got := cms.listLive(); !slices.Equal(got, []string{"document1 de Mole"}) {
		t.Errorf("got the entries %q, want the German one alone", got)
	}
}

// Messages of two languages can create the document of a slug at the same time, because their keys
// have different lanes.
func TestRecipe_StrapiLocalesCreatedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// the English message comes in between, before the German one sends its request of this
		// method
		method string
		steps  string
	}{
		"BeforeCreate": {http.MethodPost, "find live create twin undo find update"},
		"BeforeUpdate": {http.MethodPut, "find live create twin update"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cms := newStrapiLocales()
			r, other := openStrapiLocales(t, cms), openStrapiLocales(t, cms)
			cms.before[c.method] = func() { other.sendBody(inEnglish) }
			checkResult(t, r.sendBody(inGerman), weir.OutcomeDelivered, "", c.steps)

			if got := cms.listLive(); !slices.Equal(got,
				[]string{"document1 de Mole", "document1 en Pier"}) {
				t.Errorf("got the entries %q, want one document with both languages", got)
			}
		})
	}
}

// Two documents of a slug can be there for a moment. If they stay, the message is tried again, with
// words that say so.
func TestRecipe_StrapiLocalesRefusals(t *testing.T) {
	t.Parallel()
	twins := newStrapiLocales("pier", "pier")
	before := twins.snapshot()
	r := openStrapiLocales(t, twins)
	got := r.sendBody(inGerman)
	if got.Outcome == weir.OutcomeDelivered || got.Outcome == weir.OutcomeRejected ||
		!strings.Contains(got.Reason, "two documents have the slug pier") ||
		!maps.Equal(twins.snapshot(), before) {
		t.Errorf("got %+v and %v, want it tried again, and nothing written", got, twins.snapshot())
	}

	cms := newStrapiLocales()
	r = openStrapiLocales(t, cms)
	refused := strings.Replace(inGerman, "Mole", "refused", 1)
	checkResult(t, r.sendBody(refused), weir.OutcomeRejected,
		"title: title must be at least 20 characters", "find live create twin update withdraw")
	if got := cms.snapshot(); len(got) != 0 {
		t.Errorf("got the entries %v, want none", got)
	}

	french := strings.Replace(inGerman, `"de"`, `"fr"`, 1)
	_, err := r.app.contracts.Accept(t.Context(), "application/xml", []byte(french))
	if weir.KindOf(err) != weir.Invalid {
		t.Errorf("a language that Strapi does not have: got %v, want an error of the kind %v", err,
			weir.Invalid)
	}
}
