package realcms

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
)

// payload is a Payload 3 with PostgreSQL. Its collection "articles" stands in tools/cms/payload,
// and has drafts.
type payload struct {
	*Site
	key string // API key of a user
}

func newPayload(s *Site) *payload {
	s.database = &postgres{}
	return &payload{Site: s, key: rand.Text()}
}

func (p *payload) install(ctx context.Context) error {
	_, err := p.database.runSQL(ctx, "postgres", "CREATE DATABASE payload")
	return err
}

// newCommand returns the command of the server, which makes the tables at its first start.
func (p *payload) newCommand() *exec.Cmd {
	return p.node(filepath.Join(p.programs, "payload"),
		[]string{"DATABASE_SOCKET=" + p.database.(*postgres).dir, "NEXT_TELEMETRY_DISABLED=1"},
		filepath.Join("node_modules", "next", "dist", "bin", "next"), "start", "-p",
		strconv.Itoa(p.port),
		"-H", "127.0.0.1")
}

func (p *payload) checkReady(ctx context.Context) error {
	return answersOK(ctx, p.URL+"/api/access")
}

// makeContent makes the first user, and an API key for it.
func (p *payload) makeContent(ctx context.Context) error {
	var first struct {
		Token string
		User  struct{ ID int }
	}
	if err := callJSON(ctx, nil, http.MethodPost, p.URL+"/api/users/first-register", nil,
		map[string]any{"email": "weir@example.com", "password": rand.Text()}, &first); err != nil {
		return err
	}

	return callJSON(ctx, nil, http.MethodPatch,
		fmt.Sprintf("%s/api/users/%d?depth=0", p.URL, first.User.ID),
		http.Header{"Authorization": {"JWT " + first.Token}},
		map[string]any{"enableAPIKey": true, "apiKey": p.key}, nil)
}

func (p *payload) variables(url string) []string {
	return []string{"PAYLOAD_URL=" + url, "PAYLOAD_KEY=" + p.key}
}

func (p *payload) listPosts(ctx context.Context, prefix string) ([]Post, error) {
	out, err := p.database.runSQL(ctx, "payload",
		"SELECT json_build_object('id', id::text, 'slug', slug, "+
			"'status', _status, 'title', title, 'content', body) FROM articles WHERE slug LIKE '"+
			prefix+"%' ORDER BY id")
	if err != nil {
		return nil, err
	}

	return readPosts(out)
}

// setToken changes the index by which Payload finds the user of an API key.
func (p *payload) setToken(ctx context.Context, isValid bool) error {
	value := "'ended-' || api_key_index"
	if isValid {
		value = "replace(api_key_index, 'ended-', '')"
	}
	_, err := p.database.runSQL(ctx, "payload", "UPDATE users SET api_key_index = "+value)
	return err
}

func (p *payload) edit(ctx context.Context, slug string) error {
	header := http.Header{"Authorization": {"users API-Key " + p.key}}
	articles := p.URL + "/api/articles"
	var found struct{ Docs []struct{ ID int } }
	if err := callJSON(ctx, nil, http.MethodGet,
		articles+"?depth=0&where[slug][equals]="+url.QueryEscape(slug), header,
		nil, &found); err != nil || len(found.Docs) == 0 {
		return err
	}

	return callJSON(ctx, nil, http.MethodPatch,
		fmt.Sprintf("%s/%d?depth=0", articles, found.Docs[0].ID), header,
		map[string]any{"tags": []string{"seen by an editor"}}, nil)
}
