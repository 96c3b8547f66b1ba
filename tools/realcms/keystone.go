package realcms

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// keystone is a Keystone 6 with PostgreSQL. Its list "Article" stands in tools/cms/keystone, and
// its field slug is unique.
type keystone struct {
	*Site
	token string
}

func newKeystone(s *Site) *keystone {
	s.database = &postgres{}
	return &keystone{Site: s, token: rand.Text()}
}

// keystoneTable is the table that Prisma's migration engine would make of the list. npm does not
// have that engine.
const keystoneTable = `CREATE TABLE "Article" (
	id TEXT PRIMARY KEY,
	slug TEXT NOT NULL DEFAULT '' UNIQUE,
	title TEXT NOT NULL DEFAULT '',
	body TEXT NOT NULL DEFAULT '',
	version INTEGER,
	status TEXT DEFAULT 'draft'
)`

func (k *keystone) install(ctx context.Context) error {
	if _, err := k.database.runSQL(ctx, "postgres", "CREATE DATABASE keystone"); err != nil {
		return err
	}

	if _, err := k.database.runSQL(ctx, "keystone", keystoneTable); err != nil {
		return err
	}
	return k.setToken(ctx, true)
}

func (k *keystone) tokenPath() string { return filepath.Join(k.dir, "token") }

func (k *keystone) newCommand() *exec.Cmd {
	return k.node(filepath.Join(k.programs, "keystone"),
		[]string{"DATABASE_SOCKET=" + k.database.(*postgres).dir, "PORT=" + strconv.Itoa(k.port),
			"TOKEN_FILE=" + k.tokenPath(), "PRISMA_SCHEMA_ENGINE_BINARY=/bin/true"},
		filepath.Join("node_modules", "@keystone-6", "core", "bin", "cli.js"), "start", "--no-ui")
}

func (k *keystone) checkReady(ctx context.Context) error {
	return k.call(ctx, "query { articlesCount }", nil)
}

func (k *keystone) makeContent(context.Context) error { return nil }

func (k *keystone) variables(url string) []string {
	return []string{"KEYSTONE_URL=" + url, "KEYSTONE_TOKEN=" + k.token}
}

// call makes one request of GraphQL, and returns an error if the answer has one.
func (k *keystone) call(ctx context.Context, query string, variables map[string]any) error {
	var got struct {
		Errors []struct{ Message string }
	}
	body := map[string]any{"query": query, "variables": variables}
	if err := callJSON(ctx, nil, http.MethodPost, k.URL+"/api/graphql", bearer(k.token), body, &got); err != nil {
		return err
	}

	if len(got.Errors) > 0 {
		return errors.New(got.Errors[0].Message)
	}

	return nil
}

func (k *keystone) listPosts(ctx context.Context, prefix string) ([]Post, error) {
	out, err := k.database.runSQL(ctx, "keystone",
		"SELECT json_build_object('id', id, 'slug', slug, "+
			`'status', status, 'title', title, 'content', body) FROM "Article" WHERE slug LIKE '`+
			prefix+"%' ORDER BY id")
	if err != nil {
		return nil, err
	}

	return readPosts(out)
}

// setToken writes the file that Keystone reads at each request.
func (k *keystone) setToken(_ context.Context, isValid bool) error {
	token := "ended"
	if isValid {
		token = k.token
	}
	return os.WriteFile(k.tokenPath(), []byte(token), 0o600)
}

func (k *keystone) edit(ctx context.Context, slug string) error {
	err := k.call(ctx, "mutation ($slug: String!, $body: String!) "+
		"{ updateArticle(where: { slug: $slug }, data: { body: $body }) { id } }",
		map[string]any{"slug": slug, "body": "seen by an editor"})
	if err != nil && strings.Contains(err.Error(), "it may not exist") {
		return nil
	}
	return err
}
