package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const triedSettings = `
delivery:
  url: ${CMS_URL}/api?key=${API_KEY}
  headers: { X-Api-Key: short, X-Token: "${TOKEN}" }
  timeout: ${TIMEOUT}
  signIn: { bearer: "${TOKEN}" }
contracts:
  - name: article
    root: article
    key: ./@id
    deliverAt: ./due
    fields: [{ path: ./title, rule: required }]
    steps:
      - { name: find, get: "/items?ref={{ key }}" }
      - { name: create, when: len(find.json) == 0, post: /items,
          json: { title: "{{ text('./title') }}", by: "${TOKEN}" } }
  - { name: note, root: note }
  - name: page
    root: page
    key: [./@slug, ./@lang]
    steps:
      - { name: write, put: "/pages/{{ keys[0] }}?lang={{ keys[1] }}&whole={{ key }}" }
`

// runTried runs `weir try` with the given environment variables. It first writes files to a new
// directory: the parameter "messages" has the content of each file by the file's name. In args and
// in the returned output, DIR stands for this directory.
func runTried(t *testing.T, variables, messages map[string]string, args ...string) (code int,
	stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range messages {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	settings := newEnvironment(t, triedSettings)
	s, out, errs := newTestConsole(func(name string) string {
		if value := variables[name]; value != "" {
			return value
		}

		// the command "try" needs a value, because delivery.timeout must be a duration
		if name == "TIMEOUT" {
			return "5s"
		}

		return settings(name)
	})

	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, "DIR", dir)
	}

	code = s.runCommand(t.Context(), append([]string{"try"}, args...))

	return code, strings.ReplaceAll(out.String(), dir, "DIR"),
		strings.ReplaceAll(errs.String(), dir, "DIR")
}

const triedArticle = `<article id="/news/1"><title>A &amp; B</title><due>2030-01-31T08:00:00Z</due></article>`

func TestTry_Verdicts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		message, answers string
		code             int
		want             []string
	}{
		"NoAnswers": {triedArticle, "", exitOK, []string{
			"DIR/a.xml: contract article, key /news/1, due at 2030-01-31T08:00:00Z\ndelivery.signIn adds",
			"1. find\n   GET ${CMS_URL}/api/items?key=…&ref=%2Fnews%2F1\n",
			"   X-Api-Key: …\n   X-Token: …\n",
			"-- create, if this is true: len(find.json) == 0\n   POST ${CMS_URL}/api/items?key=…\n",
			"   {\n     \"by\": \"${TOKEN}\",\n     \"title\": \"A & B\"\n   }\n",
			"open: the next step needs the answer to find\n"}},
		"Delivered": {triedArticle,
			`{"find": {"status": 200, "json": []}, "create": {"status": 201}}`, exitOK,
			[]string{"   -> 200: ok\n", "2. create\n", "   -> 201: ok\n\ndelivered\n"}},
		"LeftOut": {triedArticle,
			"find: { status: 200, json: [1] }\ncreate: { status: 201 }", exitOK,
			[]string{"-- create is left out, because this is false: len(find.json) == 0\n\ndelivered\n",
				"not used: answers to create\n"}},
		"Dead": {triedArticle,
			"find: { status: 200, json: [] }\ncreate: { status: 422, body: 'no such ref' }",
			exitFailed,
			[]string{"   -> 422: reject, because 422 Unprocessable Entity: no such ref\n\ndead: create: 422"}},
		"RefusedByCMS": {triedArticle, "find: { status: 422, body: 'no such ref' }", exitFailed,
			[]string{"   -> 422: refuse, because 422 Unprocessable Entity: no such ref\n\nunavailable: find: 422"}},
		"Unavailable": {triedArticle, "find: { status: 200, body: '<html>' }", exitFailed,
			[]string{"\nunavailable: find: 200, but the answer is not JSON, but a page of HTML\n"}},
		"Retry": {triedArticle, "find: { status: 200, json: [] }\ncreate: { status: 500 }",
			exitFailed, []string{"\nretry: create: 500"}},
		"AgainAndNoMore": {triedArticle,
			"find: { status: 200, json: [] }\ncreate: { status: 409 }", exitOK,
			[]string{"   -> 409: again, because 409 Conflict\n\n3. find\n",
				"needs the answer to find"}},
		"PartsOfTheKey": {`<page slug="a|b" lang="en"/>`, "write: { status: 200 }",
			exitOK, []string{
				"DIR/a.xml: contract page, key a\\|b|en\n",
				"PUT ${CMS_URL}/api/pages/a%7Cb?key=…&lang=en&whole=a%5C%7Cb%7Cen\n"}},
		"NoPartOfTheKey": {`<page slug="a"/>`, "", exitFailed, []string{
			"the part ./@lang of the ordering key is missing"}},
		"Refused": {"<article/>", "", exitFailed,
			[]string{"DIR/a.xml: contract article\n\nrefused: line 1, column 1: the ordering key is missing\n" +
				"refused: line 1, column 1: ./title is required"}},
		"NotXML": {"<article>\n<b>", "", exitFailed,
			[]string{"refused: line 2, column 4: element <b> is not closed"}},
		"WithoutSteps": {"<note>hi</note>", "request: { status: 400, body: 'gone ${x}' }",
			exitFailed, []string{
				"1. request\n   POST ${CMS_URL}/api?key=…\n", "   Content-Type: application/xml\n",
				"\n   <note>hi</note>\n   -> 400\n",
				"\ndead: 400 Bad Request: gone ${x}\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"DIR/a.xml"}
			if c.answers != "" {
				args = append(args, "--answers", "DIR/answers")
			}

			messages := map[string]string{"a.xml": c.message, "answers": c.answers}
			code, stdout, stderr := runTried(t, nil, messages, args...)
			if code != c.code || stderr != "" {
				t.Errorf("got exit code %d and stderr %q, want %d and none", code, stderr, c.code)
			}

			for _, want := range c.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("got\n%s\nwant in it\n%s", stdout, want)
				}
			}
		})
	}
}

func TestTry_JSON(t *testing.T) {
	t.Parallel()
	code, stdout, _ := runTried(t, nil, map[string]string{"a.xml": triedArticle}, "--json",
		"DIR/a.xml")
	var got struct {
		File, Contract, Key, Verdict, Needs string
		Steps                               []struct {
			Name, OnlyIf string
			Request      struct{ Method, Address, Body string }
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != exitOK {
		t.Fatalf("got exit code %d, %v and %s, want %v and no error", code, err, stdout, exitOK)
	}

	if got.File != "DIR/a.xml" || got.Key != "/news/1" || got.Verdict != "open" ||
		got.Needs != "find" ||
		len(got.Steps) != 2 || got.Steps[0].Request.Method != "GET" ||
		got.Steps[1].OnlyIf != "len(find.json) == 0" {
		t.Errorf("got %s, want File DIR/a.xml, Key /news/1, Verdict open, Needs find, 2 Steps, Method GET and OnlyIf "+
			"\"len(find.json) == 0\"", stdout)
	}
}

func TestTry_WrongUsage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args    []string
		answers string
		code    int
		says    string
	}{
		"NoFile":      {[]string{}, "", exitUsage, "name the files of messages"},
		"MissingFile": {[]string{"DIR/none.xml"}, "", exitUsage, "no such file"},
		"Update": {[]string{"--update", "DIR/a.xml"}, "", exitUsage,
			"--update belongs to --expect"},
		"ExpectAndSend": {[]string{"--expect", "DIR", "--send"}, "", exitUsage,
			"leave out --answers, --send"},
		"Record": {[]string{"--record", "DIR/r", "DIR/a.xml"}, "", exitUsage,
			"--record belongs to --send"},
		"NotYAML": {[]string{"--answers", "DIR/answers", "DIR/a.xml"}, "find: [", exitFailed,
			"DIR/answers: [1:7]"},
		"UnknownSetting": {[]string{"--answers", "DIR/answers", "DIR/a.xml"},
			"find: { status: 200, jsn: 1 }", exitFailed,
			`unknown field "jsn"`},
		"NoStatus": {[]string{"--answers", "DIR/answers", "DIR/a.xml"},
			"find: [{ status: 200 }, { body: a }]", exitFailed,
			"answer 2 of find: status is 0 and must be 200 to 599"},
		"TwoBodies": {[]string{"--answers", "DIR/answers", "DIR/a.xml"},
			"find: { status: 200, body: a, json: 1 }", exitFailed, "it has body and json"},
		"SendWithoutVariables": {[]string{"--send", "DIR/a.xml"}, "", exitFailed,
			"${CMS_URL}, which is not set"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			messages := map[string]string{"a.xml": triedArticle, "answers": c.answers}
			code, stdout, stderr := runTried(t, nil, messages, c.args...)
			if code != c.code || !strings.Contains(stderr, c.says) || stdout != "" {
				t.Errorf("got exit code %d, stdout %q and stderr %q, want %d and %q", code,
					stdout, stderr, c.code, c.says)
			}
		})
	}
}

// triedCMS is a CMS that stores the posted items.
type triedCMS struct {
	mu    sync.Mutex
	items []string
}

func (c *triedCMS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if r.Header.Get("Authorization") != "Bearer secret-token" ||
		r.URL.Query().Get("key") != "secret-key" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}

	w.Header().Set("Set-Cookie", "session=secret-cookie")

	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		c.items = append(c.items, string(body))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"id":1,"by":%q}`, r.Header.Get("X-Token"))
		return
	}

	_, _ = io.WriteString(w, `[]`)
}

// With --record, the CMS's answers are stored without secrets. A second trial with these answers
// needs no CMS and has the same result.
func TestTry_SendAndRecord(t *testing.T) {
	t.Parallel()
	cms := &triedCMS{}
	server := httptest.NewServer(cms)
	t.Cleanup(server.Close)
	variables := map[string]string{"CMS_URL": server.URL, "API_KEY": "secret-key",
		"TOKEN": "secret-token"}
	dir := t.TempDir()
	messages := map[string]string{"a.xml": triedArticle}
	code, stdout, stderr := runTried(t, variables, messages, "--send", "--record",
		dir+"/recorded.yaml", "DIR/a.xml")
	if code != exitOK || stderr != "" || !strings.HasSuffix(stdout, "\ndelivered\n\n") {
		t.Fatalf("got exit code %d, stderr %q and\n%s\nwant %d, none, and delivered last", code,
			stderr, stdout, exitOK)
	}

	if len(cms.items) != 1 || cms.items[0] != `{"by":"secret-token","title":"A & B"}` {
		t.Errorf(`got the items %q, want 1 item and the first {"by":"secret-token","title":"A & B"}`, cms.items)
	}

	recorded, err := os.ReadFile(dir + "/recorded.yaml")
	if err != nil || strings.Contains(stdout+string(recorded), "secret-") {
		t.Errorf("got the output\n%s\nand the record\n%s\n%v, want no secret in them, and no error",
			stdout, recorded, err)
	}

	code, again, _ := runTried(t, nil, messages, "--answers", dir+"/recorded.yaml", "DIR/a.xml")
	if code != exitOK || !strings.Contains(again, "\ndelivered\n") {
		t.Errorf("got exit code %d with %s:\n%s\nwant %d and delivered", code, recorded,
			again, exitOK)
	}
}

func TestTry_SendToACMSThatIsAway(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	variables := map[string]string{"CMS_URL": server.URL, "API_KEY": "secret-key",
		"TOKEN": "secret-token"}
	code, stdout, _ := runTried(t, variables, map[string]string{"a.xml": triedArticle}, "--send",
		"DIR/a.xml")
	if code != exitFailed || !strings.Contains(stdout, "unavailable: find: ") ||
		strings.Contains(stdout, "secret-") {
		t.Errorf("got exit code %d and\n%s\nwant %d, unavailable, and no secret", code, stdout,
			exitFailed)
	}
}

// A misspelt path leaves its value out of the request. That is the most likely mistake in a recipe,
// so the trial notes it. A path that only has() asks for is no mistake.
func TestTry_NotesPathsThatSelectNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a.xml")
	if err := os.WriteFile(file, []byte(`<article id="1"><title>T</title></article>`), 0o600); err != nil {
		t.Fatal(err)
	}

	s, out, _ := newTestConsole(newEnvironment(t, `
delivery: { url: "https://cms.example/api" }
contracts:
  - name: article
    root: article
    key: ./@id
    steps:
      - { name: create, post: /items, json: { title: "{{ text('./title') }}", headline: "{{ text('./headine') }}",
          lead: "{{ has('./lead') ? 'yes' : 'no' }}" } }
`))
	if code := s.runCommand(t.Context(), []string{"try", file}); code != exitOK {
		t.Fatalf("got exit code %d and %s, want 0", code, out)
	}

	if text := out.String(); strings.Count(text, "note: ./headine selects nothing in this message") != 1 ||
		strings.Count(text, "selects nothing") != 1 {
		t.Errorf("got\n%s\nwant one note, about ./headine", text)
	}
}

// A path that is wrong for the CMS's answer is the second most likely mistake. The trial names the
// members that exist.
func TestTry_NotesMembersThatAnAnswerLacks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}

	s, out, _ := newTestConsole(newEnvironment(t, `
delivery: { url: "https://cms.example/api" }
contracts:
  - name: article
    root: article
    key: ./@id
    steps:
      - { name: find, get: "/items?ref={{ key }}" }
      - { name: update, put: "/items/{{ find.json.id }}", json: { title: "{{ text('./title') }}" } }
`))

	s.runCommand(t.Context(), []string{"try",
		write("a.xml", `<article id="1"><title>T</title></article>`),
		"--answers", write("answers",
			`find: { status: 200, json: { data: [ { id: 7 } ], meta: {} } }`)})

	const want = "note: find.json has no member id; it has data, meta\n"
	if text := out.String(); strings.Count(text, want) != 1 {
		t.Errorf("got\n%s\nwant one note: %s", text, want)
	}
}
