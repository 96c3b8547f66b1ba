package realcms

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"weir/tools/freeport"
)

// DirectusOptions are the settings for StartDirectus.
type DirectusOptions struct {
	Log io.Writer // receives the output of the processes; nil = the output is discarded
}

// Directus is a running Directus with its own PostgreSQL server. In its collection "articles", only the field id is
// unique.
type Directus struct {
	URL   string
	Token string // token of a user who can only create, read, update and delete articles

	dir      string
	script   string
	port     int
	log      io.Writer
	admin    string // token of the administrator
	secret   string
	database postgres
	web      *process
}

// directusProgram is the script of Directus's command line. This package runs the script directly, because the program
// in Directus's own folder "bin" first asks the npm registry for a newer version.
var directusProgram = filepath.Join("node_modules", "@directus", "api", "dist", "cli", "run.js")

// StartDirectus makes a database, starts Directus, and returns when Directus answers. ctx limits only the start:
// Directus and its database run until Stop is called or this process ends. This process can run as root or as any other
// user.
func StartDirectus(ctx context.Context, o DirectusOptions) (*Directus, error) {
	tools, err := findAbove("tools", filepath.Join("directus", directusProgram), "make test-directus")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "weir-directus-")
	if err != nil {
		return nil, err
	}
	d := &Directus{Token: rand.Text(), dir: dir, script: filepath.Join(tools, "directus", directusProgram), log: o.Log,
		admin: rand.Text(), secret: rand.Text()}
	if d.log == nil {
		d.log = io.Discard
	}
	if err := d.startServer(ctx); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

func (d *Directus) startServer(ctx context.Context) (err error) {
	if d.port, err = freeport.Pick(); err != nil {
		return err
	}
	d.URL = "http://127.0.0.1:" + strconv.Itoa(d.port)
	if err := d.database.startServer(ctx, d.dir, d.log); err != nil {
		return err
	}
	if _, err := d.database.runSQL(ctx, "postgres", "CREATE DATABASE directus"); err != nil {
		return err
	}
	if out, err := runToEnd(ctx, d.newCommand("bootstrap")); err != nil {
		return fmt.Errorf("install Directus: %w\n%s", err, out)
	}
	if err := d.StartWeb(ctx); err != nil {
		return err
	}
	return d.makeArticles(ctx)
}

func (d *Directus) newCommand(name string) *exec.Cmd {
	cmd := exec.Command("node", d.script, name)
	cmd.Dir = d.dir
	cmd.Env = append(os.Environ(), "DB_CLIENT=pg", "DB_HOST="+d.database.dir, "DB_PORT=5432", "DB_DATABASE=directus",
		"DB_USER=postgres", "DB_PASSWORD=none", "SECRET="+d.secret, "ADMIN_EMAIL=admin@example.com",
		"ADMIN_PASSWORD="+d.secret, "ADMIN_TOKEN="+d.admin, "TELEMETRY=false", "HOST=127.0.0.1",
		"PORT="+strconv.Itoa(d.port), "PUBLIC_URL="+d.URL, "LOG_LEVEL=warn",
		// With the limiter, Directus on a busy machine answers 503 to all requests, even to requests that prepare a
		// test.
		"PRESSURE_LIMITER_ENABLED=false")
	return cmd
}

// StartWeb starts the web server, for the first time or after StopWeb, and returns when the server answers. The port is
// the same after each start.
func (d *Directus) StartWeb(ctx context.Context) (err error) {
	if d.web, err = startProcess("Directus", d.newCommand("start"), d.log); err != nil {
		return err
	}
	return d.web.awaitReady(ctx, func(ctx context.Context) error { return answersOK(ctx, d.URL+"/server/ping") })
}

// StopWeb ends the web server. The database keeps running.
func (d *Directus) StopWeb() error { return d.web.stopGroup() }

// Stop ends all processes of this Directus, and removes their files.
func (d *Directus) Stop() error {
	return errors.Join(d.web.stopGroup(), d.database.process.stopGroup(), os.RemoveAll(d.dir))
}

// makeArticles makes the collection "articles", and the user whose token is d.Token.
func (d *Directus) makeArticles(ctx context.Context) error {
	field := func(name, kind string, schema map[string]any) map[string]any {
		return map[string]any{"field": name, "type": kind, "schema": schema}
	}
	required, optional := map[string]any{"is_nullable": false}, map[string]any{}
	if err := d.postAsAdmin(ctx, "/collections", map[string]any{"collection": "articles", "schema": map[string]any{},
		"meta": map[string]any{}, "fields": []any{
			field("id", "integer", map[string]any{"is_primary_key": true, "has_auto_increment": true}),
			field("slug", "string", required), field("version", "integer", optional),
			field("title", "string", required),
			field("body", "text", optional), field("tags", "json", optional), field("status", "string", optional),
		}}, nil); err != nil {
		return err
	}
	var policy struct{ Data struct{ ID string } }
	if err := d.postAsAdmin(ctx, "/policies", map[string]any{"name": "weir", "admin_access": false,
		"app_access": false},
		&policy); err != nil {
		return err
	}
	for _, action := range []string{"create", "read", "update", "delete"} {
		if err := d.postAsAdmin(ctx, "/permissions", map[string]any{"policy": policy.Data.ID, "collection": "articles",
			"action": action, "fields": []string{"*"}, "permissions": map[string]any{}}, nil); err != nil {
			return err
		}
	}
	return d.postAsAdmin(ctx, "/users", map[string]any{"email": "weir@example.com", "token": d.Token,
		"policies": []any{map[string]any{"policy": policy.Data.ID}}}, nil)
}

// postAsAdmin posts as the administrator. answer can be nil.
func (d *Directus) postAsAdmin(ctx context.Context, path string, body, answer any) error {
	header := http.Header{"Authorization": {"Bearer " + d.admin}}
	return callJSON(ctx, nil, http.MethodPost, d.URL+path, header, body, answer)
}

// Posts returns the articles whose slug has the prefix, in the order of creation. It reads the articles from the
// database.
func (d *Directus) Posts(ctx context.Context, prefix string) ([]Post, error) {
	if !isPrefix(prefix) {
		return nil, fmt.Errorf("%q is no prefix of a slug", prefix)
	}
	out, err := d.database.runSQL(ctx, "directus",
		"SELECT json_build_object('id', id, 'slug', slug, 'status', status, "+
			"'title', title, 'content', body) FROM articles WHERE slug LIKE '"+prefix+"%' ORDER BY id")
	if err != nil {
		return nil, err
	}
	return readPosts(out)
}

// DirectusClient writes articles by Directus's REST API without Weir. It looks for an article of the slug before it
// creates an article, as a careful integration does. It is safe for concurrent use.
type DirectusClient struct {
	URL, Token string
	HTTP       *http.Client // nil = http.DefaultClient
}

// Upsert writes one version of the slug's article. It writes nothing if the article has the same version or a newer
// one.
func (c *DirectusClient) Upsert(ctx context.Context, slug string, version int) error {
	header := http.Header{"Authorization": {"Bearer " + c.Token}}
	items := c.URL + "/items/articles"
	var found struct{ Data []struct{ ID, Version int } }
	if err := callJSON(ctx, c.HTTP, http.MethodGet, items+"?fields=id,version&filter[slug][_eq]="+slug, header, nil,
		&found); err != nil {
		return err
	}
	item := map[string]any{"slug": slug, "version": version, "title": TitleOf(slug, version),
		"body": "<p>" + bodyOf(version) + "</p>", "status": "published"}
	if len(found.Data) == 0 {
		return callJSON(ctx, c.HTTP, http.MethodPost, items, header, item, nil)
	}
	if found.Data[0].Version >= version {
		return nil
	}
	return callJSON(ctx, c.HTTP, http.MethodPatch, items+"/"+strconv.Itoa(found.Data[0].ID), header, item, nil)
}

// postgres is a PostgreSQL that listens on a Unix socket only.
type postgres struct {
	dir     string              // folder of the socket and the data
	bin     string              // folder of PostgreSQL's programs
	as      *syscall.Credential // user of PostgreSQL's processes; nil = the user of this process
	process *process
}

// startServer makes an empty database cluster in a folder below dir, starts the cluster's server, and returns when the
// server answers.
func (p *postgres) startServer(ctx context.Context, dir string, log io.Writer) error {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return errors.New("PostgreSQL is missing: apt-get install -y postgresql")
	}
	p.bin, p.dir = filepath.Dir(found[len(found)-1]), filepath.Join(dir, "pg")
	if err := p.makeFolder(dir); err != nil {
		return err
	}
	data := filepath.Join(p.dir, "data")
	if _, err := runToEnd(ctx, p.newCommand("initdb", "--auth=trust", "--username=postgres", "--no-sync", "-D",
		data)); err != nil {
		return err
	}
	p.process, err = startProcess("PostgreSQL", p.newCommand("postgres", "-D", data, "-k", p.dir, "-c",
		"listen_addresses=", "-c", "fsync=off"), log)
	if err != nil {
		return err
	}
	return p.process.awaitReady(ctx, func(ctx context.Context) error {
		_, err := p.runSQL(ctx, "postgres", "SELECT 1")
		return err
	})
}

// makeFolder makes the cluster's folder. If this process is root, makeFolder gives the folder to the user postgres,
// because PostgreSQL refuses to run as root.
func (p *postgres) makeFolder(dir string) error {
	if err := os.Mkdir(p.dir, 0o700); err != nil || os.Geteuid() != 0 {
		return err
	}
	owner, err := user.Lookup("postgres")
	if err != nil {
		return err
	}
	uid, uidErr := strconv.Atoi(owner.Uid)
	gid, gidErr := strconv.Atoi(owner.Gid)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return err
	}
	p.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return errors.Join(os.Chmod(dir, 0o711), os.Chown(p.dir, uid, gid))
}

func (p *postgres) newCommand(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.as}
	return cmd
}

// runSQL runs SQL in a database, and returns the rows as lines of text.
func (p *postgres) runSQL(ctx context.Context, database, sql string) (string, error) {
	return runToEnd(ctx, p.newCommand("psql", "--no-psqlrc", "--host="+p.dir, "--username=postgres", "--tuples-only",
		"--no-align", "--command="+sql, database))
}

// callJSON makes one request, and returns an error if the status is not 2xx. client, header, body and answer can be
// nil.
func callJSON(ctx context.Context, client *http.Client, method, address string, header http.Header, body,
	answer any) error {
	var content strings.Builder
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(content.String()))
	if err != nil {
		return err
	}
	if header != nil {
		req.Header = header.Clone()
	}
	req.Header.Set("Content-Type", "application/json")
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %.200s", method, address, resp.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
