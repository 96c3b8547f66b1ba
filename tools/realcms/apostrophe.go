package realcms

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// apostrophe is an ApostropheCMS 4 with PostgreSQL. Its piece type "article" stands in
// tools/cms/apostrophe.
type apostrophe struct {
	*Site
	key string // API key with the role "editor"
}

func newApostrophe(s *Site) *apostrophe {
	s.database = &postgres{}
	return &apostrophe{Site: s, key: rand.Text()}
}

func (a *apostrophe) install(ctx context.Context) error {
	if _, err := a.database.runSQL(ctx, "postgres", "CREATE DATABASE apos"); err != nil {
		return err
	}
	return a.setToken(ctx, true)
}

func (a *apostrophe) tokenPath() string { return filepath.Join(a.dir, "token") }

func (a *apostrophe) newCommand() *exec.Cmd {
	cmd := a.node(filepath.Join(a.programs, "apostrophe"), []string{
		"DATABASE_URI=postgres://" + postgresUser + "@localhost/apos?host=" +
			a.database.(*postgres).dir,
		"PORT=" + strconv.Itoa(a.port),
		"TOKEN=" + a.key, "TOKEN_FILE=" + a.tokenPath()}, "app.js")

	// in production the assets would have to be built
	cmd.Env = append(cmd.Env, "NODE_ENV=development")
	return cmd
}

func (a *apostrophe) header() http.Header {
	return http.Header{"Authorization": {"ApiKey " + a.key}}
}

func (a *apostrophe) checkReady(ctx context.Context) error {
	return callJSON(ctx, nil, http.MethodGet, a.URL+"/api/v1/article", a.header(), nil, nil)
}

func (a *apostrophe) makeContent(context.Context) error { return nil }

func (a *apostrophe) variables(url string) []string {
	return []string{"APOSTROPHE_URL=" + url, "APOSTROPHE_KEY=" + a.key}
}

// listPosts returns the published documents, and the draft of a document that is not published.
func (a *apostrophe) listPosts(ctx context.Context, prefix string) ([]Post, error) {
	out, err := a.database.runSQL(ctx, "apos", `WITH docs AS (SELECT data, data->>'aposDocId' AS id,
		data->>'aposMode' = 'published' AS live FROM "aposDocs" WHERE data->>'type' = 'article' AND
		data->>'aposMode' IN ('draft', 'published') AND data->>'slug' LIKE '`+prefix+`%')
		SELECT json_build_object('id', id, 'slug', data->>'slug',
		'status', CASE WHEN live THEN 'published' ELSE 'draft' END, 'title', data->>'title', 'content', data->>'body')
		FROM docs d
		WHERE live OR NOT EXISTS (SELECT 1 FROM docs p WHERE p.id = d.id AND p.live) ORDER BY id`)
	if err != nil {
		return nil, err
	}

	return readPosts(out)
}

// setToken makes the file whose absence ends the token: see tools/cms/apostrophe/app.js.
func (a *apostrophe) setToken(_ context.Context, isValid bool) error {
	if isValid {
		return os.WriteFile(a.tokenPath(), nil, 0o600)
	}
	return os.Remove(a.tokenPath())
}

// edit changes the draft, and publishes it.
func (a *apostrophe) edit(ctx context.Context, slug string) error {
	articles := a.URL + "/api/v1/article"
	var found struct {
		Results []struct {
			ID   string `json:"aposDocId"`
			Slug string
		}
	}
	if err := callJSON(ctx, nil, http.MethodGet,
		articles+"?aposMode=draft&perPage=50&slug="+url.QueryEscape(slug),
		a.header(), nil, &found); err != nil {
		return err
	}

	for _, r := range found.Results {
		if r.Slug != slug {
			continue
		}

		if err := callJSON(ctx, nil, http.MethodPatch, articles+"/"+r.ID+"?aposMode=draft",
			a.header(), map[string]any{"body": "<p>seen by an editor</p>"}, nil); err != nil {
			return err
		}

		return callJSON(ctx, nil, http.MethodPost, articles+"/"+r.ID+"/publish", a.header(),
			map[string]any{}, nil)
	}

	return nil
}
