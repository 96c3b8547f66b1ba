package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/internal/weir"
)

// sitecore is a fake CMS. It answers as the documentation of Sitecore's Authoring GraphQL API says.
type sitecore struct {
	liberties
	mu       sync.Mutex
	items    map[string]any // an item's fields, by the item's path
	operated []any          // paths of the items that a job published
	// number of issued tokens; only the newest token is valid; the first token is never valid
	tokens int
	// number of further status requests that find a publishing job unfinished
	polls    int
	blind    int    // number of further look-ups that find no item
	starts   bool   // Sitecore is starting: it answers with a page of HTML
	fails    string // text of the error in the answer to each mutation; "" = no error
	failsAll bool   // a query has the error, too
}

const sitecoreHome = "/sitecore/content/Home"

func (s *sitecore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	reply := func(data any, errors ...any) {
		answer := map[string]any{"data": data}
		if len(errors) > 0 {
			answer["errors"] = errors
		}
		_ = json.NewEncoder(w).Encode(answer)
	}

	switch {
	case r.URL.Path == "/oauth/token":
		if user, password, _ := r.BasicAuth(); user != "client" || password != "secret-of-client" ||
			r.FormValue("audience") != "https://api.sitecorecloud.io" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"access_denied"}`)
			return
		}

		s.tokens++
		fmt.Fprintf(w, `{"access_token":"token-number-%d","token_type":"Bearer","expires_in":86400}`, s.tokens)
		return

	case s.starts:
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!DOCTYPE html><html><title>Starting</title></html>")
		return

	case r.Header.Get("Authorization") != fmt.Sprintf("Bearer token-number-%d", s.tokens) ||
		s.tokens == 1:
		// the first token is refused, like a token that expired early
		w.WriteHeader(http.StatusUnauthorized)
		return
	}

	var request struct {
		Query     string
		Variables map[string]any
	}

	_ = json.NewDecoder(r.Body).Decode(&request)
	v := request.Variables
	item := func(path any) any {
		if _, is := s.items[fmt.Sprint(path)]; !is {
			return nil
		}

		found := map[string]any{"itemId": path, "path": path}
		maps.DeleteFunc(found,
			func(field string, _ any) bool { return !asksFor(request.Query, field) })
		return found
	}

	switch {
	case s.fails != "" && (s.failsAll || strings.HasPrefix(request.Query, "mutation")):
		reply(nil, map[string]any{"message": s.fails})
	case strings.Contains(request.Query, "parent: item("):
		found := item(s.findItem(fmt.Sprint(v["path"])))
		if s.blind > 0 {
			s.blind, found = s.blind-1, nil
		}
		reply(map[string]any{"item": found, "parent": item(v["parent"])})

	case strings.Contains(request.Query, "createItem("):
		path := fmt.Sprint(v["parent"], "/", s.storedSlug(v["name"]))
		if item(path) != nil {
			reply(
				nil,
				map[string]any{
					"message": fmt.Sprintf("The item name %q is already defined on this level.",
						v["name"]),
					"path": []any{"createItem"},
				},
			)

			return
		}

		s.items[path] = v["fields"]
		reply(map[string]any{"createItem": map[string]any{"item": item(path)}})

	case strings.Contains(request.Query, "updateItem("):
		s.items[fmt.Sprint(v["id"])] = v["fields"]
		reply(map[string]any{"updateItem": map[string]any{"item": item(v["id"])}})
	case strings.Contains(request.Query, "deleteItem("):
		delete(s.items, fmt.Sprint(v["id"]))
		reply(map[string]any{"deleteItem": map[string]any{"successful": true}})
	case strings.Contains(request.Query, "publishItem("):
		s.recordPublished(v["id"])
		s.operated = append(s.operated, v["id"])
		reply(map[string]any{"publishItem": map[string]any{"operationId": "op-1"}})

	case strings.Contains(request.Query, "publishingStatus("):
		s.polls--
		reply(map[string]any{"publishingStatus": map[string]any{"isDone": s.polls < 0, "isFailed": false}})
	default:
		reply(nil, map[string]any{"message": "Syntax Error"})
	}
}

var (
	graphQLArguments = regexp.MustCompile(`\([^()]*\)`)
	graphQLName      = regexp.MustCompile(`\w+`)
)

// asksFor reports whether a query selects a field. A GraphQL server answers with no other fields.
func asksFor(query, field string) bool {
	return slices.Contains(graphQLName.FindAllString(graphQLArguments.ReplaceAllString(query, ""),
		-1), field)
}

// findItem returns the path of the item that a look-up shows. Sitecore compares paths without case.
func (s *sitecore) findItem(path string) string {
	for _, stored := range slices.Sorted(maps.Keys(s.items)) {
		if strings.HasPrefix(path, sitecoreHome+"/") &&
			s.finds(strings.TrimPrefix(stored, sitecoreHome+"/"),
				strings.TrimPrefix(path, sitecoreHome+"/")) {
			return stored
		}
	}

	return path
}

func (s *sitecore) listArticles() (states []string) {
	for path := range s.items {
		states = append(states, nameState(slices.Contains(s.operated, any(path))))
	}
	return states
}

func (s *sitecore) snapshot() map[string]string { return printItems(s.items) }

func openSitecore(t *testing.T, cms *sitecore) *recipe {
	t.Helper()
	return openRecipe(t, "sitecore", sitecoreWithTokens{cms}, map[string]string{"SITECORE_URL": "",
		"SITECORE_TOKEN_URL": "", "SITECORE_CLIENT_ID": "client",
		"SITECORE_CLIENT_SECRET": "secret-of-client"})
}

func TestRecipe_Sitecore(t *testing.T) {
	t.Parallel()
	const path = sitecoreHome + "/news/harbour-opens"
	for name, c := range map[string]struct {
		cms    *sitecore
		want   weir.Outcome
		reason string
		steps  string
	}{
		"New": {
			&sitecore{items: map[string]any{sitecoreHome + "/news": nil}},
			weir.OutcomeDelivered, "",
			"find create publish published",
		},
		"There": {
			&sitecore{items: map[string]any{sitecoreHome + "/news": nil, path: nil}},
			weir.OutcomeDelivered, "",
			"find update publish published",
		},
		"CreatedMeanwhile": {
			&sitecore{items: map[string]any{sitecoreHome + "/news": nil, path: nil}, blind: 1},
			weir.OutcomeDelivered,
			"", "find create find update publish published",
		},
		"OtherCase": {
			&sitecore{
				liberties: liberties{isFound: strings.EqualFold},
				items: map[string]any{sitecoreHome + "/news": nil,
					sitecoreHome + "/news/Harbour-Opens": nil},
			}, weir.OutcomeRejected,
			"Sitecore takes " + sitecoreHome +
				"/news/Harbour-Opens for /news/harbour-opens", "find",
		},
		"NoParentYet": {
			&sitecore{}, weir.OutcomeRetry,
			"find: 200: the parent of /news/harbour-opens is not there yet", "find",
		},
		"NameRefused": {
			&sitecore{items: map[string]any{sitecoreHome + "/news": nil},
				fails: "An item name cannot contain any of the following characters: ?"},
			weir.OutcomeRejected,
			"create: 200: An item name cannot contain", "find create",
		},
		"UnknownError": {
			&sitecore{items: map[string]any{sitecoreHome + "/news": nil},
				fails: "Object reference not set"},
			weir.OutcomeRetry, "create: 200: Object reference not set", "find create",
		},
		"DatabaseAway": {
			&sitecore{fails: "A network-related error occurred", failsAll: true},
			weir.OutcomeUnavailable,
			"find: 200: A network-related error occurred", "find",
		},
		"Starts": {
			&sitecore{starts: true}, weir.OutcomeUnavailable,
			"find: 200, but the answer is not JSON, but a page of HTML", "find",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := openSitecore(t, c.cms)
			checkResult(t, r.sendBody(r.readSample("article.xml")), c.want, c.reason, c.steps)
			if c.want != weir.OutcomeDelivered {
				return
			}

			want := "[map[name:Title value:The harbour opens] map[name:Text value:<p>From Monday on.</p>]]"
			if fmt.Sprint(c.cms.items[path]) != want ||
				fmt.Sprint(c.cms.operated) != "["+path+"]" ||
				len(c.cms.items) != 2 {
				t.Errorf("got %v, published %v, want the item %v, published %v and 2 items",
					c.cms.items, c.cms.operated, want, "["+path+"]")
			}

			if c.cms.tokens != 2 {
				t.Errorf("got %d tokens, want 2, because the first one was refused", c.cms.tokens)
			}
		})
	}
}

// sitecoreWithTokens also issues tokens at the path /, because openRecipe sets SITECORE_TOKEN_URL
// to the server's root.
type sitecoreWithTokens struct{ *sitecore }

func (s sitecoreWithTokens) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" || r.URL.Path == "" {
		r.URL.Path = "/oauth/token"
	}
	s.sitecore.ServeHTTP(w, r)
}
