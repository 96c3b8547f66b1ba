package realcms

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// mediaWiki is a MediaWiki of Debian with PHP's built-in server and MariaDB.
type mediaWiki struct {
	*Site
	bots   map[string]string // bot password of each user
	editor *http.Client      // has the session of the editor; nil = not signed in
}

// The users of the wiki. Weir may delete pages, too.
const (
	wikiWeir   = "Weir"
	wikiEditor = "Editor"
)

func newMediaWiki(s *Site) *mediaWiki {
	s.database = &mariadb{}
	return &mediaWiki{Site: s,
		bots: map[string]string{wikiWeir: botPassword(), wikiEditor: botPassword()}}
}

// botPassword returns a random password. MediaWiki wants at least 32 characters of 0 to 9 and a to
// w.
func botPassword() string { return hex.EncodeToString([]byte(rand.Text())) }

func (m *mediaWiki) folder() string { return filepath.Join(m.programs, "mediawiki", "w") }

// php returns a command of PHP in the wiki's folder. The settings are in the folder of the data.
func (m *mediaWiki) php(args ...string) *exec.Cmd {
	cmd := exec.Command("php", args...)
	cmd.Dir = m.folder()
	cmd.Env = append(os.Environ(), "MW_CONFIG_FILE="+m.settingsPath(),
		"PHP_CLI_SERVER_WORKERS="+strconv.Itoa(webWorkers))
	return cmd
}

func (m *mediaWiki) settingsPath() string { return filepath.Join(m.dir, "LocalSettings.php") }

func (m *mediaWiki) install(ctx context.Context) error {
	cmd := m.php("maintenance/install.php", "--dbtype", "mysql", "--dbserver",
		"localhost:"+m.database.(*mariadb).socketPath(), "--dbname", "wiki", "--dbuser", "root",
		"--dbpass", "",
		"--server", m.URL, "--scriptpath", "", "--pass", rand.Text(), "--confpath", m.dir,
		"Harbour", "Admin")

	cmd.Env = os.Environ() // without the settings, which this command writes
	if _, err := runToEnd(ctx, cmd); err != nil {
		return err
	}

	if err := m.addSettings(); err != nil {
		return err
	}

	for user, grants := range map[string]string{
		wikiWeir:   "basic,highvolume,editpage,createeditmovepage,delete",
		wikiEditor: "basic,highvolume,editpage,createeditmovepage"} {
		for _, args := range [][]string{
			{"maintenance/createAndPromote.php", "--sysop", user, rand.Text()},
			{"maintenance/createBotPassword.php", "--appid", "weir", "--grants", grants, user,
				m.bots[user]},
		} {
			if _, err := runToEnd(ctx, m.php(args...)); err != nil {
				return err
			}
		}
	}

	return nil
}

// addSettings adds to the settings that the installer wrote. MediaWiki allows 90 edits a minute by
// default, which would make each scenario take minutes.
func (m *mediaWiki) addSettings() error {
	file, err := os.OpenFile(m.settingsPath(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}

	_, err = io.WriteString(file,
		"\n$wgMainCacheType = CACHE_DB;\n$wgSessionCacheType = CACHE_DB;\n"+
			"$wgRateLimits = [];\n$wgShowExceptionDetails = false;\n$wgEnableUploads = false;\n")
	if closed := file.Close(); err == nil {
		err = closed
	}

	return err
}

func (m *mediaWiki) newCommand() *exec.Cmd {
	cmd := m.php("-c", endGroup, "sh", "php", "-d", "memory_limit=256M", "-d",
		"opcache.enable_cli=1", "-d",
		"display_errors=0", "-S", "127.0.0.1:"+strconv.Itoa(m.port), "-t", m.folder())
	cmd.Path, cmd.Args[0] = "/bin/sh", "sh"
	return cmd
}

func (m *mediaWiki) checkReady(ctx context.Context) error {
	return answersOK(ctx, m.URL+"/api.php?action=query&meta=siteinfo&format=json")
}

func (m *mediaWiki) makeContent(context.Context) error { return nil }

func (m *mediaWiki) variables(url string) []string {
	return []string{"WIKI_URL=" + url, "WIKI_USER=" + wikiWeir + "@weir",
		"WIKI_PASSWORD=" + m.bots[wikiWeir]}
}

// listPosts returns the pages of the main namespace. The title of a Post is the first line of the
// page.
func (m *mediaWiki) listPosts(ctx context.Context, prefix string) ([]Post, error) {
	out, err := m.database.runSQL(ctx, "wiki", "SELECT JSON_OBJECT('id', CAST(page_id AS CHAR), "+
		"'slug', REPLACE(CONVERT(page_title USING utf8mb4), '_', ' '), 'status', 'published', "+
		"'title', SUBSTRING_INDEX(CONVERT(old_text USING utf8mb4), '\\n', 1), "+
		"'content', CONVERT(old_text USING utf8mb4)) "+
		"FROM page JOIN slots ON slot_revision_id = page_latest JOIN content ON content_id = slot_content_id "+
		"JOIN text ON old_id = SUBSTRING(content_address, 4) "+
		"WHERE page_namespace = 0 AND CONVERT(page_title USING utf8mb4) LIKE '"+prefix+
		"%' ORDER BY page_id")
	if err != nil {
		return nil, err
	}

	return readPosts(out)
}

// setToken ends all sessions. Weir signs in again by itself.
func (m *mediaWiki) setToken(ctx context.Context, isValid bool) error {
	if isValid {
		return nil
	}
	_, err := m.database.runSQL(ctx, "wiki", "TRUNCATE objectcache")
	return err
}

// edit adds a line to the end of the page. After an error the editor signs in anew.
func (m *mediaWiki) edit(ctx context.Context, slug string) error {
	token, err := m.signIn(ctx)
	if err == nil {
		err = m.callAPI(ctx, url.Values{"action": {"edit"}, "title": {slug}, "nocreate": {"1"},
			"bot":        {"1"},
			"appendtext": {"\n\nSeen by an editor."}, "assert": {"user"}, "token": {token}}, nil)
	}

	if err == nil || strings.Contains(err.Error(), "missingtitle") {
		return nil
	}

	m.editor = nil

	return err
}

// signIn signs the editor in if there is no session, and returns the token for edits.
func (m *mediaWiki) signIn(ctx context.Context) (string, error) {
	var answer struct {
		Query struct {
			Tokens struct{ LoginToken, CSRFToken string }
		}
	}

	if m.editor == nil {
		jar, err := cookiejar.New(nil)
		if err != nil {
			return "", err
		}

		m.editor = &http.Client{Jar: jar, Timeout: time.Minute}
		if err := m.callAPI(ctx,
			url.Values{"action": {"query"}, "meta": {"tokens"}, "type": {"login"}},
			&answer); err != nil {
			return "", err
		}

		if err := m.callAPI(ctx, url.Values{"action": {"login"}, "lgname": {wikiEditor + "@weir"},
			"lgpassword": {m.bots[wikiEditor]}, "lgtoken": {answer.Query.Tokens.LoginToken}},
			nil); err != nil {
			return "", err
		}
	}

	err := m.callAPI(ctx, url.Values{"action": {"query"}, "meta": {"tokens"}}, &answer)
	return answer.Query.Tokens.CSRFToken, err
}

// callAPI makes one request of the Action API as the editor, and returns an error if the answer has
// one. answer can be nil.
func (m *mediaWiki) callAPI(ctx context.Context, form url.Values, answer any) error {
	form.Set("format", "json")
	form.Set("formatversion", "2")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL+"/api.php",
		strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}

	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := m.editor.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}

	var failure struct{ Error struct{ Code, Info string } }
	if err := json.Unmarshal(text, &failure); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("api.php %s: %s: %.200s", form.Get("action"), resp.Status, text)
	}

	if failure.Error.Code != "" {
		return fmt.Errorf("api.php %s: %s: %s", form.Get("action"), failure.Error.Code,
			failure.Error.Info)
	}

	if answer == nil {
		return nil
	}

	return json.Unmarshal(text, answer)
}
