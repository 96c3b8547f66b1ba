package realcms

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// directus is a Directus with PostgreSQL. In its collection "articles", only the field id is
// unique.
type directus struct {
	*Site
	token  string // token of a user who can only create, read, update and delete articles
	admin  string // token of the administrator
	secret string
}

func newDirectus(s *Site) *directus {
	s.database = &postgres{}
	return &directus{Site: s, token: rand.Text(), admin: rand.Text(), secret: rand.Text()}
}

func (d *directus) install(ctx context.Context) error {
	if _, err := d.database.runSQL(ctx, "postgres", "CREATE DATABASE directus"); err != nil {
		return err
	}
	_, err := runToEnd(ctx, d.run("bootstrap"))
	return err
}

func (d *directus) newCommand() *exec.Cmd { return d.run("start") }

// run returns a command of Directus's command line. It runs the script directly, because the
// program in Directus's own folder "bin" first asks the npm registry for a newer version. The
// script needs the Node that has compiled the package isolated-vm: the one of this machine.
func (d *directus) run(name string) *exec.Cmd {
	script := filepath.Join(d.programs, "directus", "node_modules", "@directus", "api", "dist",
		"cli", "run.js")
	cmd := exec.Command("node", script, name)
	cmd.Dir = d.dir
	cmd.Env = append(os.Environ(), "DB_CLIENT=pg", "DB_HOST="+d.database.(*postgres).dir,
		"DB_PORT=5432",
		"DB_DATABASE=directus", "DB_USER="+postgresUser, "DB_PASSWORD=none", "SECRET="+d.secret,
		"ADMIN_EMAIL=admin@example.com", "ADMIN_PASSWORD="+d.secret, "ADMIN_TOKEN="+d.admin,
		"TELEMETRY=false",
		"HOST=127.0.0.1", "PORT="+strconv.Itoa(d.port), "PUBLIC_URL="+d.URL, "LOG_LEVEL=warn",
		// With the limiter, Directus on a busy machine answers 503 to all requests, even to
		// requests that prepare a test.
		"PRESSURE_LIMITER_ENABLED=false")

	return cmd
}

func (d *directus) checkReady(ctx context.Context) error {
	return answersOK(ctx, d.URL+"/server/ping")
}

// makeContent makes the collection "articles", and the user whose token is d.token.
func (d *directus) makeContent(ctx context.Context) error {
	field := func(name, kind string, schema map[string]any) map[string]any {
		return map[string]any{"field": name, "type": kind, "schema": schema}
	}
	required, optional := map[string]any{"is_nullable": false}, map[string]any{}
	if err := d.postAsAdmin(ctx, "/collections",
		map[string]any{"collection": "articles", "schema": map[string]any{},
			"meta": map[string]any{}, "fields": []any{
				field("id", "integer",
					map[string]any{"is_primary_key": true, "has_auto_increment": true}),
				field("slug", "string", required), field("version", "integer", optional),
				field("title", "string", required),
				field("body", "text", optional), field("tags", "json", optional),
				field("status", "string", optional),
			}}, nil); err != nil {
		return err
	}

	var policy struct{ Data struct{ ID string } }
	if err := d.postAsAdmin(ctx, "/policies", map[string]any{"name": "weir", "admin_access": false,
		"app_access": false}, &policy); err != nil {
		return err
	}

	for _, action := range []string{"create", "read", "update", "delete"} {
		if err := d.postAsAdmin(ctx, "/permissions",
			map[string]any{"policy": policy.Data.ID, "collection": "articles",
				"action": action, "fields": []string{"*"}, "permissions": map[string]any{}},
			nil); err != nil {
			return err
		}
	}

	return d.postAsAdmin(ctx, "/users",
		map[string]any{"email": "weir@example.com", "token": d.token,
			"policies": []any{map[string]any{"policy": policy.Data.ID}}}, nil)
}

// postAsAdmin posts as the administrator. answer can be nil.
func (d *directus) postAsAdmin(ctx context.Context, path string, body, answer any) error {
	return callJSON(ctx, nil, http.MethodPost, d.URL+path, bearer(d.admin), body, answer)
}

func (d *directus) variables(url string) []string {
	return []string{"DIRECTUS_URL=" + url, "DIRECTUS_TOKEN=" + d.token}
}

func (d *directus) listPosts(ctx context.Context, prefix string) ([]Post, error) {
	out, err := d.database.runSQL(ctx, "directus",
		"SELECT json_build_object('id', id::text, 'slug', slug, 'status', status, "+
			"'title', title, 'content', body) FROM articles WHERE slug LIKE '"+prefix+
			"%' ORDER BY id")
	if err != nil {
		return nil, err
	}

	return readPosts(out)
}

func (d *directus) setToken(ctx context.Context, isValid bool) error {
	token := "ended-" + d.token
	if isValid {
		token = d.token
	}

	_, err := d.database.runSQL(ctx, "directus", "UPDATE directus_users SET token = '"+token+
		"' WHERE email = 'weir@example.com'")
	return err
}

func (d *directus) edit(ctx context.Context, slug string) error {
	var found struct{ Data []struct{ ID int } }
	items := d.URL + "/items/articles"
	if err := callJSON(ctx, nil, http.MethodGet,
		items+"?fields=id&filter[slug][_eq]="+url.QueryEscape(slug),
		bearer(d.admin), nil, &found); err != nil || len(found.Data) == 0 {
		return err
	}

	return callJSON(ctx, nil, http.MethodPatch, fmt.Sprintf("%s/%d", items, found.Data[0].ID),
		bearer(d.admin), map[string]any{"tags": []string{"seen by an editor"}}, nil)
}
