package realcms

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// strapi is a Strapi 5. Its collection type "article" stands in tools/cms/strapi, and its field
// slug is unique.
type strapi struct {
	*Site
	token   string // token with the rights of the recipe's README
	locales string // languages beside English, with a space between two
}

func newStrapi(s *Site, d database) *strapi {
	s.database = d
	return &strapi{Site: s}
}

// install copies the app, because a test with languages changes it.
func (c *strapi) install(ctx context.Context) error {
	programs := filepath.Join(c.programs, "strapi")
	if err := os.Mkdir(c.appDir(), 0o755); err != nil {
		return err
	}

	if _, err := runToEnd(ctx, exec.Command("cp", "-r", filepath.Join(programs, "config"),
		filepath.Join(programs, "src"), filepath.Join(programs, "package.json"),
		c.appDir()+"/")); err != nil {
		return err
	}

	if err := os.Symlink(filepath.Join(programs, "node_modules"),
		filepath.Join(c.appDir(), "node_modules")); err != nil {
		return err
	}

	if err := os.MkdirAll(filepath.Join(c.publicDir(), "uploads"), 0o755); err != nil {
		return err
	}

	_, err := c.database.runSQL(ctx, c.systemDatabase(), "CREATE DATABASE strapi")

	return err
}

// systemDatabase returns the name of a database that each server has.
func (c *strapi) systemDatabase() string {
	if _, isMariaDB := c.database.(*mariadb); isMariaDB {
		return ""
	}
	return "postgres"
}

func (c *strapi) appDir() string    { return filepath.Join(c.dir, "app") }
func (c *strapi) publicDir() string { return filepath.Join(c.dir, "public") }
func (c *strapi) tokenPath() string { return filepath.Join(c.dir, "token") }

func (c *strapi) newCommand() *exec.Cmd {
	env := []string{"PORT=" + strconv.Itoa(c.port), "TOKEN_FILE=" + c.tokenPath(),
		"PUBLIC_DIR=" + c.publicDir(),
		"STRAPI_TELEMETRY_DISABLED=true", "FORCE_COLOR=0", "LOCALES=" + c.locales}
	switch d := c.database.(type) {
	case *mariadb:
		env = append(env, "DATABASE_CLIENT=mysql", "DATABASE_SOCKET="+d.socketPath())
	case *postgres:
		env = append(env, "DATABASE_CLIENT=postgres", "DATABASE_SOCKET="+d.dir)
	}

	return c.node(c.appDir(), env,
		filepath.Join("node_modules", "@strapi", "strapi", "bin", "strapi.js"), "start")
}

func (c *strapi) checkReady(ctx context.Context) error {
	return answersStatus(ctx, c.URL+"/_health", http.StatusNoContent)
}

// makeContent reads the token that Strapi made at its first start: see
// tools/cms/strapi/src/index.js.
func (c *strapi) makeContent(context.Context) error {
	text, err := os.ReadFile(c.tokenPath())
	c.token = strings.TrimSpace(string(text))
	return err
}

func (c *strapi) variables(url string) []string {
	return []string{"STRAPI_URL=" + url, "STRAPI_TOKEN=" + c.token}
}

// listPosts returns the published entry of each document, and the draft of a document that is not
// published.
func (c *strapi) listPosts(ctx context.Context, prefix string) ([]Post, error) {
	object := "json_build_object"
	if _, isMariaDB := c.database.(*mariadb); isMariaDB {
		object = "JSON_OBJECT"
	}

	out, err := c.database.runSQL(ctx, "strapi",
		"SELECT "+object+"('id', document_id, 'slug', slug, 'status', "+
			"CASE WHEN published_at IS NULL THEN 'draft' ELSE 'published' END, 'title', title, 'content', body) "+
			"FROM articles a WHERE slug LIKE '"+prefix+
			"%' AND (published_at IS NOT NULL OR NOT EXISTS "+
			"(SELECT 1 FROM articles p WHERE p.document_id = a.document_id AND p.published_at IS NOT NULL)) ORDER BY id")
	if err != nil {
		return nil, err
	}

	return readPosts(out)
}

func (c *strapi) setToken(ctx context.Context, isValid bool) error {
	columns := "lifespan = 604800000, expires_at = '2020-01-01 00:00:00'"
	if isValid {
		columns = "lifespan = NULL, expires_at = NULL"
	}
	_, err := c.database.runSQL(ctx, "strapi", "UPDATE strapi_api_tokens SET "+columns)
	return err
}

func (c *strapi) edit(ctx context.Context, slug string) error { return c.editEntry(ctx, slug, "") }

// editEntry changes the tags of an entry. locale is a part of a query, or empty.
func (c *strapi) editEntry(ctx context.Context, slug, locale string) error {
	var found struct {
		Data []struct {
			DocumentID string `json:"documentId"`
		}
	}

	articles := c.URL + "/api/articles"
	if err := callJSON(ctx, nil, http.MethodGet,
		articles+"?fields[0]=slug&filters[slug][$eq]="+url.QueryEscape(slug)+locale,
		bearer(c.token), nil,
		&found); err != nil || len(found.Data) == 0 {
		return err
	}

	return callJSON(ctx, nil, http.MethodPut,
		fmt.Sprintf("%s/%s?status=published%s", articles, found.Data[0].DocumentID, locale),
		bearer(c.token),
		map[string]any{"data": map[string]any{"tags": []string{"seen by an editor"}}}, nil)
}
