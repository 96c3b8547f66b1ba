package realcms

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ghost is a Ghost 6 with MariaDB.
type ghost struct {
	*Site
	owner      *http.Client // has the session of the owner
	id, secret string       // Admin API key of a custom integration
}

func newGhost(s *Site) *ghost {
	s.database = &mariadb{}
	return &ghost{Site: s}
}

func (g *ghost) folder() string { return filepath.Join(g.programs, "ghost", "v6") }

// install copies the folder of the content, because Ghost writes to it.
func (g *ghost) install(ctx context.Context) error {
	if _, err := runToEnd(ctx, exec.Command("cp", "-r", filepath.Join(g.folder(), "content"), g.dir)); err != nil {
		return err
	}
	_, err := g.database.runSQL(ctx, "", "CREATE DATABASE ghost CHARACTER SET utf8mb4")
	return err
}

func (g *ghost) newCommand() *exec.Cmd {
	return g.node(g.folder(), []string{
		"url=" + g.URL, "server__host=127.0.0.1", "server__port=" + strconv.Itoa(g.port),
		"database__client=mysql", "database__connection__user=root",
		"database__connection__database=ghost",
		"database__connection__socketPath=" + g.database.(*mariadb).socketPath(),
		"paths__contentPath=" + filepath.Join(g.dir, "content") + "/",
		"mail__transport=Direct", `logging__transports=["stdout"]`, "logging__level=warn",
		"privacy__useUpdateCheck=false", "privacy__useGravatar=false", "privacy__useRpcPing=false",
		"privacy__useStructuredData=false", "security__staffDeviceVerification=false",
	}, "index.js")
}

func (g *ghost) checkReady(ctx context.Context) error {
	return answersOK(ctx, g.URL+"/ghost/api/admin/site/")
}

// makeContent makes the owner, and a custom integration for Weir.
func (g *ghost) makeContent(ctx context.Context) error {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}

	g.owner = &http.Client{Jar: jar, Timeout: time.Minute}

	email, password := "owner@example.com", rand.Text()
	if err := g.asOwner(ctx, http.MethodPost, "/authentication/setup/",
		map[string]any{"setup": []any{map[string]any{
			"name": "Owner", "email": email, "password": password, "blogTitle": "Harbour"}}},
		nil); err != nil {
		return err
	}

	if err := g.asOwner(ctx, http.MethodPost, "/session/", map[string]any{"username": email,
		"password": password}, nil); err != nil {
		return err
	}

	var made struct {
		Integrations []struct {
			Keys []struct{ ID, Type, Secret string } `json:"api_keys"`
		}
	}
	if err := g.asOwner(ctx, http.MethodPost, "/integrations/?include=api_keys",
		map[string]any{"integrations": []any{
			map[string]any{"name": "Weir"}}}, &made); err != nil {
		return err
	}

	for _, i := range made.Integrations {
		for _, k := range i.Keys {
			if id, secret, isPair := strings.Cut(k.Secret, ":"); k.Type == "admin" && isPair {
				g.id, g.secret = id, secret
				return nil
			}
		}
	}

	return errors.New("the integration has no Admin API key")
}

func (g *ghost) asOwner(ctx context.Context, method, path string, body, answer any) error {
	return callJSON(ctx, g.owner, method, g.URL+"/ghost/api/admin"+path,
		http.Header{"Origin": {g.URL}}, body, answer)
}

func (g *ghost) variables(url string) []string {
	return []string{"GHOST_URL=" + url, "GHOST_KEY_ID=" + g.id, "GHOST_KEY_SECRET=" + g.secret}
}

func (g *ghost) listPosts(ctx context.Context, prefix string) ([]Post, error) {
	out, err := g.database.runSQL(ctx, "ghost",
		"SELECT JSON_OBJECT('id', id, 'slug', slug, 'status', status, "+
			"'title', title, 'content', html) FROM posts "+
			"WHERE type = 'post' AND slug LIKE '"+prefix+"%' ORDER BY created_at")
	if err != nil {
		return nil, err
	}

	return readPosts(out)
}

// setToken changes the secret in Ghost, so that Ghost refuses what Weir signs.
func (g *ghost) setToken(ctx context.Context, isValid bool) error {
	secret := strings.Repeat("0", len(g.secret))
	if isValid {
		secret = g.secret
	}

	_, err := g.database.runSQL(ctx, "ghost",
		"UPDATE api_keys SET secret = '"+secret+"' WHERE id = '"+g.id+"'")
	return err
}

// edit changes the excerpt. Ghost refuses the change if the post was changed after it was read.
func (g *ghost) edit(ctx context.Context, slug string) error {
	var found struct {
		Posts []struct {
			ID        string
			UpdatedAt string `json:"updated_at"`
		}
	}
	if err := g.asOwner(ctx, http.MethodGet,
		"/posts/?fields=id,updated_at&filter=slug:"+url.QueryEscape("'"+slug+"'"),
		nil, &found); err != nil || len(found.Posts) == 0 {
		return err
	}

	post := found.Posts[0]
	return g.asOwner(ctx, http.MethodPut, fmt.Sprintf("/posts/%s/", post.ID),
		map[string]any{"posts": []any{
			map[string]any{"custom_excerpt": "seen by an editor", "updated_at": post.UpdatedAt}}},
		nil)
}
