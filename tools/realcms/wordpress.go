package realcms

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"weir/tools/freeport"
)

//go:embed php
var phpFiles embed.FS

// webWorkers is the number of requests that PHP's built-in web server handles at a time.
const webWorkers = 8

// WordPressOptions are the settings for StartWordPress.
type WordPressOptions struct {
	Port int       // port of the site; 0 = a free port
	Log  io.Writer // receives the output of the processes; nil = the output is discarded
}

// WordPress is a running WordPress with its own MariaDB server.
type WordPress struct {
	URL           string // address of the site, without a slash at its end
	User          string // name of a user with the role Editor
	Password      string // application password of the user, for requests by REST and XML-RPC
	LoginPassword string // password of the user, for the sign-in on WordPress's own pages

	dir      string
	port     int
	log      io.Writer
	php      string // path of PHP's program
	database mariadb
	web      *process
}

// phpPackages are the packages of Debian with PHP and its extensions.
const phpPackages = "php-cli php-mysql php-xml php-curl"

// StartWordPress installs WordPress into a new folder, starts the site, and returns when the site
// answers. ctx limits only the start: the site and its database run until Stop is called or this
// process ends. This process can run as root or as any other user.
func StartWordPress(ctx context.Context, o WordPressOptions) (*WordPress, error) {
	php, err := findProgram("php", phpPackages)
	if err != nil {
		return nil, err
	}

	unpacked, err := findAbove(filepath.Join("build", "wordpress"), "wp-load.php", "make wordpress")
	if err != nil {
		return nil, err
	}

	// The path of a Unix socket has at most 107 characters. So this folder is not in a test's
	// temporary folder, whose path can be longer.
	dir, err := os.MkdirTemp("", "weir-wp-")
	if err != nil {
		return nil, err
	}

	wp := &WordPress{User: "weir", LoginPassword: rand.Text(), dir: dir, port: o.Port,
		log: o.Log, php: php,
		// copySite writes the path of the socket before the server is made
		database: mariadb{dir: dir}}
	if wp.log == nil {
		wp.log = io.Discard
	}

	if err := wp.startServer(ctx, unpacked); err != nil {
		return nil, errors.Join(err, wp.Stop())
	}

	return wp, nil
}

func (wp *WordPress) startServer(ctx context.Context, unpacked string) error {
	if wp.port == 0 {
		port, err := freeport.Pick()
		if err != nil {
			return err
		}
		wp.port = port
	}

	wp.URL = "http://127.0.0.1:" + strconv.Itoa(wp.port)
	if err := wp.copySite(ctx, unpacked); err != nil {
		return err
	}

	if err := wp.startDatabase(ctx); err != nil {
		return err
	}

	out, err := runToEnd(ctx, exec.Command(wp.php,
		filepath.Join(wp.siteDir(), "setup.php"), wp.User, wp.LoginPassword))
	if err != nil {
		return fmt.Errorf("install WordPress: %w", err)
	}

	_, password, found := strings.Cut(out, "application-password:")
	if !found {
		return fmt.Errorf("install WordPress: no application password in %q", out)
	}

	wp.Password = strings.TrimSpace(password)

	return wp.StartWeb(ctx)
}

func (wp *WordPress) siteDir() string { return filepath.Join(wp.dir, "site") }

// copySite copies WordPress's files, and adds the settings of this site.
func (wp *WordPress) copySite(ctx context.Context, unpacked string) error {
	if _, err := runToEnd(ctx, exec.Command("cp", "-r", unpacked, wp.siteDir())); err != nil {
		return err
	}

	plugins := filepath.Join(wp.siteDir(), "wp-content", "mu-plugins")
	if err := os.MkdirAll(plugins, 0o755); err != nil {
		return err
	}

	for name, to := range map[string]string{
		"wp-config.php": filepath.Join(wp.siteDir(), "wp-config.php"),
		"setup.php":     filepath.Join(wp.siteDir(), "setup.php"),
		"router.php":    filepath.Join(wp.dir, "router.php"),
		"pages.php":     filepath.Join(plugins, "pages.php"),
	} {
		text, err := phpFiles.ReadFile("php/" + name)
		if err != nil {
			return err
		}

		if err := os.WriteFile(to, text, 0o644); err != nil {
			return err
		}
	}

	settings := fmt.Sprintf("<?php\ndefine('REALCMS_SOCKET', '%s');\ndefine('REALCMS_URL', '%s');\n"+
		"define('REALCMS_SECRET', '%s');\n", wp.database.socketPath(), wp.URL, rand.Text())

	return os.WriteFile(filepath.Join(wp.siteDir(), "settings.php"), []byte(settings), 0o600)
}

// startDatabase makes an empty database, starts a server that listens only on a Unix socket, and
// returns when the server answers.
func (wp *WordPress) startDatabase(ctx context.Context) error {
	if err := wp.database.makeServer(ctx, wp.dir, wp.log); err != nil {
		return err
	}

	if err := wp.database.startServer(ctx); err != nil {
		return err
	}

	_, err := wp.database.runSQL(ctx, "", "CREATE DATABASE wordpress CHARACTER SET utf8mb4")
	return err
}

// endGroup is a shell script that runs a program. On SIGTERM the script ends its whole process
// group. When the Go process dies, the kernel sends SIGTERM only to the child that the Go process
// started. Without the script, this child would be PHP's server, and the server's workers would go
// on running.
const endGroup = `trap 'trap - TERM; kill 0' TERM; "$@" & wait`

// StartWeb starts the web server, for the first time or after StopWeb, and returns when the server
// answers. The port is the same after each start.
func (wp *WordPress) StartWeb(ctx context.Context) error {
	cmd := exec.Command("sh", "-c", endGroup, "sh", wp.php, "-d", "opcache.enable_cli=1", "-d",
		"display_errors=0", "-S", "127.0.0.1:"+strconv.Itoa(wp.port), "-t", wp.siteDir(),
		filepath.Join(wp.dir, "router.php"))
	cmd.Env = append(os.Environ(), "PHP_CLI_SERVER_WORKERS="+strconv.Itoa(webWorkers))
	var err error
	if wp.web, err = startProcess("PHP", cmd, wp.log); err != nil {
		return err
	}

	return wp.web.awaitReady(ctx, func(ctx context.Context) error {
		return answersOK(ctx, wp.URL+"/wp-json/wp/v2/posts?_fields=id")
	})
}

// StopWeb ends the web server without waiting for requests in flight. The database keeps running.
func (wp *WordPress) StopWeb() error { return wp.web.stopGroup() }

// Stop ends all processes of this WordPress, and removes their files.
func (wp *WordPress) Stop() error {
	return errors.Join(wp.web.stopGroup(), wp.database.process.stopGroup(), os.RemoveAll(wp.dir))
}
