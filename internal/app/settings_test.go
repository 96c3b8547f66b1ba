package app

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/fold"
	"weir/internal/storage/azure"
	"weir/internal/testkit/settings"
)

const minimal = `
delivery: { url: "http://127.0.0.1:7072/api/content" }
contracts:
  - { name: article, root: article, key: ./@path }
`

// newEnvironment returns an environment with a weir.yaml of this text. The argument "more" has
// further variables: a name, its value, the next name, and so on.
func newEnvironment(t testing.TB, text string, more ...string) func(string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "weir.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	values := map[string]string{"AzureWebJobsStorage": "UseDevelopmentStorage=true",
		"FUNCTIONS_APP_ROOT_PATH": dir}
	for i := 0; i < len(more); i += 2 {
		values[more[i]] = more[i+1]
	}

	return func(name string) string { return values[name] }
}

func TestLoadSettings_Defaults(t *testing.T) {
	t.Parallel()
	s, err := loadSettings(newEnvironment(t, minimal))
	if err != nil {
		t.Fatal(err)
	}

	if s.Prefix != "weir" || s.Lanes != 1 || s.MaxBody != 1<<20 ||
		s.Retention != duration(7*24*time.Hour) ||
		s.DeadRetention != duration(90*24*time.Hour) ||
		s.settleTime() != 3*time.Second || s.Delivery.Attempts != 5 ||
		s.Delivery.Method != "POST" ||
		s.TicketDelay.Max != duration(10*time.Second) ||
		s.Delivery.Patience != duration(24*time.Hour) {
		t.Errorf("got %+v, want the defaults that docs/settings.md lists", s)
	}
}

func TestLoadSettings_Fold(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fold.Rules{"": 0, "fold: []\n": 0,
		"fold: [accents]\n": fold.Accents, "fold:\n  - nfc\n  - case\n": fold.NFC | fold.Case} {
		s, err := loadSettings(newEnvironment(t, minimal+text))
		if err != nil || s.Fold.rules != want {
			t.Errorf("%s: got %v, %v, want %v", text, s.Fold.rules, err, want)
		}
	}
}

func TestLoadSettings_Answers(t *testing.T) {
	t.Parallel()
	s, err := loadSettings(newEnvironment(t, strings.Replace(minimal, "./@path }",
		"./@path, answers: { 403: rejected, 404: retry } }", 1)))
	if err != nil || len(s.Contracts) == 0 ||
		!maps.Equal(s.Contracts[0].Answers, map[int]string{403: "rejected", 404: "retry"}) {
		t.Errorf("got %+v (%v), want answers 403: rejected and 404: retry", s.Contracts, err)
	}
}

func TestLoadSettings_TheTestsOwnFile(t *testing.T) {
	t.Parallel()
	s, err := loadSettings(newEnvironment(t, settings.YAML, "WEIR_CMS_URL",
		"http://127.0.0.1:7072/api/content"))
	if err != nil || s.Delivery.URL != "http://127.0.0.1:7072/api/content" ||
		len(s.Contracts) != 2 {
		t.Errorf("got %+v (%v), want the URL of WEIR_CMS_URL and two contracts", s, err)
	}
}

func TestLoadSettings_NoPrefixUnderAHost(t *testing.T) {
	t.Parallel()
	_, err := loadSettings(newEnvironment(t, minimal, "FUNCTIONS_CUSTOMHANDLER_PORT", "40001"))
	if err == nil || strings.Count(err.Error(), "\n") != 0 || !strings.Contains(err.Error(),
		"set the app setting WEIR_PREFIX") {
		t.Errorf("got %v, want one line that names WEIR_PREFIX", err)
	}

	s, err := loadSettings(newEnvironment(t, minimal, "FUNCTIONS_CUSTOMHANDLER_PORT", "40001",
		"WEIR_PREFIX", "news"))
	if err != nil || s.Prefix != "news" {
		t.Errorf("got the prefix %q, %v; want news and no error", s.Prefix, err)
	}
}

func TestLoadSettings_AValueFromTheEnvironmentCannotBecomeYAML(t *testing.T) {
	t.Parallel()
	s, err := loadSettings(newEnvironment(t,
		strings.Replace(minimal, `"http://127.0.0.1:7072/api/content"`, "${CMS}",
			1)+"# ${UNSET} in a comment\n", "CMS", "http://x/?a=b\", lanes: 9 #"))
	if err != nil || s.Lanes != 1 || !strings.Contains(s.Delivery.URL, "lanes: 9") {
		t.Errorf("got %+v (%v), want the whole value of CMS in the URL, and lanes 1", s, err)
	}
}

func TestLoadSettings_AValueFromTheEnvironmentIsKeptAsItIs(t *testing.T) {
	t.Parallel()
	value := `a"b'c\d #e: {f}` + "\u00e4"
	for _, written := range []string{"${X}", `"${X}"`, "'${X}'", "${X} # as ${UNSET} was"} {
		text := strings.Replace(minimal, "delivery: {",
			"delivery: { headers: { A: "+written+"\n, B: \"Bearer "+"${X}.\" },", 1)
		s, err := loadSettings(newEnvironment(t, text, "X", value))
		if h := s.Delivery.Headers; err != nil || string(h["A"]) != value ||
			string(h["B"]) != "Bearer "+value+"." {
			t.Errorf("%s: got %q (%v), want %q in both headers", written, h, err, value)
		}
	}
}

func TestLoadSettings_ANumberFromTheEnvironment(t *testing.T) {
	t.Parallel()
	s, err := loadSettings(newEnvironment(t, "lanes: ${LANES}\nlease: ${LEASE}\n"+minimal, "LANES",
		"9", "LEASE", "20s"))
	if err != nil || s.Lanes != 9 || time.Duration(s.Lease) != 20*time.Second {
		t.Errorf("got lanes %d and lease %s (%v), want 9 and 20s", s.Lanes, s.Lease, err)
	}
}

func TestLoadSettings_Rates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"5/s": 200 * time.Millisecond,
		"90 / m": time.Minute / 90, "1/m": time.Minute} {
		s, err := loadSettings(newEnvironment(t, strings.Replace(minimal, "delivery: {",
			"delivery: { maxConcurrent: 3, rate: "+text+",", 1)))
		if err != nil || s.Delivery.Rate.interval() != want || s.Delivery.MaxConcurrent != 3 {
			t.Errorf("%s: got the interval %s and maxConcurrent %d (%v), want %s and 3", text,
				s.Delivery.Rate.interval(),
				s.Delivery.MaxConcurrent, err, want)
		}
	}
}

func TestLoadSettings_BackoffAsAList(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"[10s, 1m, 1d]", "\n    - 10s\n    - 1m\n    - 1d\n "} {
		text := "contracts: [{ name: a, root: a }]\ndelivery:\n  url: http://127.0.0.1:1/\n  backoff: " + list + "\n"
		s, err := loadSettings(newEnvironment(t, text))
		if err != nil || !slices.Equal(s.backoffConfig().Steps,
			[]time.Duration{10 * time.Second, time.Minute, 24 * time.Hour}) {
			t.Errorf("got the backoff %v (%v), want the steps 10s, 1m, 1d", s.backoffConfig(), err)
		}
	}
}

func TestLoadSettings_Calendar(t *testing.T) {
	t.Parallel()
	a, err := New(newEnvironment(t,
		minimal+"calendar:\n  timezone: Europe/Berlin\n  closed:\n    - { name: night "+
			"freeze, days: [fri, sat], from: 22:00, to: \"06:00\" }\n    - { name: year end, from: 2026-12-24T12:00, to: "+
			"2027-01-02T00:00 }\n"), nil)
	if err != nil {
		t.Fatal(err)
	}

	for moment, closed := range map[string]string{"2026-06-12T20:00:00Z": "night freeze",
		"2026-12-25T00:00:00Z": "year end", "2026-06-11T20:00:00Z": ""} {
		at, err := time.Parse(time.RFC3339, moment)
		if err != nil {
			t.Fatal(err)
		}

		f := diagnosis{a}.diagnoseCalendar(at)
		if _, reason, _ := a.calendar.At(at); reason != closed ||
			(closed != "") != strings.HasPrefix(f.Detail, "closed ("+closed+") until 202") {
			t.Errorf("at %s: got closed by %q and the detail %q, want %q in both", moment, reason,
				f.Detail, closed)
		}
	}
}

func TestLoadSettings_Notify(t *testing.T) {
	t.Parallel()
	text := minimal + `
notify:
  - { url: "https://ops.example.com/weir", secret: ${NOTIFY}, events: [message.dead, lane.behind], contracts: [article], behindBy: 1h }
  - { url: "https://ops.example.com/now", secret: ${NOTIFY}, events: [lane.paused], pausedFor: 0s }
callbacks: { allowedHosts: [hooks.example.com, "*.example.org"], secret: "${CALLBACKS}" }
`

	const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	s, err := loadSettings(newEnvironment(t, text, "NOTIFY", key, "CALLBACKS", key+" "+key))
	if err != nil {
		t.Fatal(err)
	}

	receivers, _ := s.eventReceivers()
	callbacks, _ := s.callbackRules()

	if r := receivers[0]; r.BehindBy != time.Hour || r.PausedFor != 10*time.Minute ||
		r.AllowPrivate ||
		!slices.Equal(r.Contracts, []string{"article"}) {
		t.Errorf("got the receiver %+v, want behindBy 1h, pausedFor 10m and the contract article",
			r)
	}

	if r := receivers[1]; r.PausedFor != 0 || r.BehindBy != 15*time.Minute {
		t.Errorf("got the receiver %+v, want pausedFor 0s and behindBy 15m", r)
	}

	if err := callbacks.Check("https://a.example.org/x"); err != nil {
		t.Error(err)
	}

	if text := fmt.Sprintf("%v %+v %#v", s, receivers, callbacks); strings.Contains(text, "MfKQ") {
		t.Errorf("got %v, want no part of a secret (\"MfKQ\")", text)
	}
}

func TestLoadSettings_CallbackHosts(t *testing.T) {
	t.Parallel()
	const shared, own = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
		"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	s, err := loadSettings(newEnvironment(t, minimal+`
callbacks:
  secret: ${SHARED}
  allowedHosts: [a.example, { host: b.example, secret: "${OWN}" }, {host: "*.example.org"}]
`, "SHARED", shared, "OWN", own))
	if err != nil {
		t.Fatal(err)
	}

	c, problems := s.callbackRules()
	if want := []string{"a.example", "b.example", "*.example.org"}; !slices.Equal(c.AllowedHosts, want) ||
		len(problems) > 0 {
		t.Errorf("got the hosts %v and the problems %v, want %v and none", c.AllowedHosts,
			problems, want)
	}

	if len(c.HostSecrets) != 1 || c.HostSecrets["b.example"].String() != "(secret)" {
		t.Errorf("got the secrets %v, want one for b.example, printed as (secret)", c.HostSecrets)
	}

	got := s.listWarnings()
	if len(got) != 1 || !strings.Contains(got[0], "a.example and *.example.org have one secret") {
		t.Errorf("got the warnings %q, want one about the two hosts with the same secret", got)
	}

	if _, err = loadSettings(newEnvironment(t,
		minimal+"callbacks: { allowedHosts: [{ host: b.example, "+
			"secret: "+own+" }] }\n")); err != nil {
		t.Errorf("each host has its secret: got %v, want no error", err)
	}
}

func TestLoadSettings_SecretsDoNotPrint(t *testing.T) {
	t.Parallel()
	s, err := loadSettings(newEnvironment(t, minimal, "AzureWebJobsStorage", "AccountKey=hunter2"))
	if text := fmt.Sprintf("%v %+v %#v", s, s, s); err != nil || strings.Contains(text, "hunter2") {
		t.Errorf("got %s (%v), want no secret in it", text, err)
	}
}

func TestLoadSettings_Refuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, problem string }{
		"UnknownKey": {minimal + "lames: 3\n", "lames"},
		"UnknownNested": {strings.Replace(minimal, "delivery: {", "delivery: { speed: 3,", 1),
			"speed"},
		"NotYAML": {"lanes: [", "weir.yaml"},
		"VariableWithDefault": {minimal + "lanes: ${LANES:-2}\n",
			"${LANES:-2} has a default, which is not supported"},
		"MissingEnv": {minimal + "lanes: ${NOT_SET}\n", "NOT_SET"},
		"Lanes":      {minimal + "lanes: 0\n", "weir.yaml: [5:8] lanes is 0"},
		"FoldUnknown": {minimal + "fold: [case, width]\n",
			`[5:14] fold[1]: "width" is not case, accents or nfc`},
		"FoldText":    {minimal + "fold: case\n", `[5:7] fold: "case" is not a list such as`},
		"Lease":       {minimal + "lease: 10s\n", "lease is 10s"},
		"LeaseNoUnit": {minimal + "lease: 30\n", `[5:8] lease: "30" is not a duration`},
		"DaysOverflow": {minimal + "deadRetention: 215000d\n",
			`[5:16] deadRetention: "215000d" is not a duration ` + `of at most 106751d`},
		"Size":         {minimal + "maxBody: big\n", `[5:10] maxBody: "big" is not a size`},
		"TooLargeBody": {minimal + "maxBody: 200MiB\n", "maxBody"},
		"Instances": {strings.Replace(minimal, "delivery: {", "delivery: { instances: all,", 1),
			"delivery.instances"},
		"TicketDelay":   {minimal + "ticketDelay: { min: 5s, max: 1s }\n", "ticketDelay"},
		"DeadRetention": {minimal + "retention: 10d\ndeadRetention: 9d\n", "deadRetention"},
		"Patience": {strings.Replace(minimal, "delivery: {", "delivery: { patience: 1s,", 1),
			"patience"},
		"RetryAfter": {strings.Replace(minimal, "delivery: {", "delivery: { retryAfter: 5 s,", 1),
			"[2:25] delivery.retryAfter is \"5 s\" and must be the name of a header, such as X-RateLimit-Reset"},
		"Brake": {strings.Replace(minimal, "delivery: {", "delivery: { brake: -1,", 1),
			"[2:20] delivery.brake is -1 and must be 0 (off) to 1000"},
		"RetryFor": {strings.Replace(minimal, "delivery: {", "delivery: { retryFor: 91d,", 1),
			"[2:23] delivery.retryFor is 91d and must be 0s to 90d"},
		"Attempts": {strings.Replace(minimal, "delivery: {", "delivery: { attempts: 0,", 1),
			"[2:23] delivery.attempts is 0"},
		"AttemptsText": {strings.Replace(minimal, "delivery: {", "delivery: { attempts: many,", 1),
			`[2:23] delivery.attempts: "many" is not a whole number`},
		"BrakeText": {strings.Replace(minimal, "delivery: {", "delivery: { brake: 5m,", 1),
			`[2:20] delivery.brake: "5m" is not a whole number`},
		"BoolText": {minimal + "callbacks: { allowPrivate: maybe }\n",
			`[5:28] callbacks.allowPrivate: "maybe" is not true or false`},
		"ListText": {minimal + "callbacks: { allowedHosts: x }\n",
			`[5:28] callbacks.allowedHosts: "x" is not a list`},
		"GroupText": {"delivery: http://x/\n",
			`[1:11] delivery: "http://x/" is not a group of settings`},
		"BackoffEmpty": {strings.Replace(minimal, "delivery: {", "delivery: { backoff: [],", 1),
			"empty"},
		"BackoffLong": {strings.Replace(minimal, "delivery: {", "delivery: { backoff: [1s, 2d],",
			1), "at most 1d"},
		"BackoffText": {strings.Replace(minimal, "delivery: {",
			"delivery: { backoff: [1s, soon],", 1), `[2:27] delivery.backoff[1]: "soon"`},
		"BackoffUnknown": {strings.Replace(minimal, "delivery: {",
			"delivery: { backoff: { min: 1s, most: 2s },", 1), `[2:33] unknown field "most"`},
		"BackoffScalar": {strings.Replace(minimal, "delivery: {", "delivery: { backoff: 5s,", 1),
			`[2:22] delivery.backoff: "5s" is not`},
		"Backoff": {strings.Replace(minimal, "delivery: {",
			"delivery: { backoff: { min: 10s, max: 1s },", 1), "backoff"},
		"Rate": {strings.Replace(minimal, "delivery: {", "delivery: { rate: 0/s,", 1),
			"such as 5/s"},
		"MaxConcurrent": {strings.Replace(minimal, "delivery: {",
			"delivery: { maxConcurrent: -1,", 1), "maxConcurrent"},
		"PollIdle":      {minimal + "poll: { idle: 0s }\n", "[5:15] poll.idle is 0s"},
		"PollTolerance": {minimal + "poll: { tolerance: 0 }\n", "poll.tolerance is 0"},
		"CalendarZone":  {minimal + "calendar: { timezone: Mars }\n", "calendar: timezone"},
		"CalendarDay": {minimal +
			"calendar: { closed: [{ name: a, days: [someday], from: 1:00, to: 2:00 }] }\n",
			"someday"},
		"CalendarField": {minimal + "calendar: { opened: [] }\n", "opened"},
		"NotifyURL": {minimal + "notify: [{ url: \"http://x.example/\", secret: " +
			"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw, events: [message.dead] }]\n", "notify[0].url"},
		"NotifySecret": {minimal +
			"notify: [{ url: \"https://x.example/\", events: [message.dead] }]\n",
			"notify[0].secret"},
		"NotifyContract": {minimal + "notify: [{ url: \"https://x.example/\", secret: " +
			"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw, events: [message.dead], contracts: [none] }]\n",
			"no contract \"none\""},
		"CallbackSecret": {minimal + "callbacks: { allowedHosts: [x.example] }\n",
			"callbacks.secret"},
		"CallbackHost": {minimal + "callbacks: { allowedHosts: [\"*\"], secret: " +
			"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw }\n", "callbacks.allowedHosts"},
		"HostSecret": {minimal +
			"callbacks: { allowedHosts: [{ host: x.example, secret: s3cret }] }\n",
			"callbacks.allowedHosts[0].secret"},
		"HostField": {minimal + "callbacks: { allowedHosts: [{ host: x.example, key: s3cret }] }\n",
			`unknown field "key"`},
		"UnknownElsewhere": {strings.Replace(minimal, "delivery: {",
			"delivery: { superseed: true,", 1),
			`[2:13] unknown field "superseed"; did you mean supersede?`},
		"UnknownZone": {minimal + "calendar: { zone: Mars }\n",
			`[5:13] unknown field "zone"; known here: closed, timezone`},
		"UnknownLane": {minimal + "lane: 2\n", `[5:1] unknown field "lane"; did you mean lanes?`},
		"UnknownVersion": {strings.Replace(minimal, "./@path }", "./@path, verison: ./@v }", 1),
			"did you mean version?"},
		"UnknownTimeout": {strings.Replace(minimal, "delivery: {", "delivery: { timeot: 3s,", 1),
			"did you mean timeout?"},
		"ScheduleMax":  {minimal + "schedules: { max: 0 }\n", "schedules.max is 0"},
		"ScheduleRate": {minimal + "schedules: { rate: 0/s }\n", `"0/s" is not a rate`},
		"LogLevel": {minimal + "log: { level: chatty }\n",
			`"chatty" is not a level: debug, info, warn or error`},
		"Method": {strings.Replace(minimal, "delivery: {", "delivery: { method: GET,", 1),
			"method"},
		"NoURL":       {"contracts: [{ name: a, root: a }]\n", "delivery.url"},
		"NoContracts": {"delivery: { url: \"http://x/\" }\n", "contracts"},
		"AnswerUnknown": {strings.Replace(minimal, "./@path }",
			"./@path, answers: { 403: dead } }", 1), `answers: 403 is "dead"`},
		"AnswerNoStatus": {strings.Replace(minimal, "./@path }",
			"./@path, answers: { forbidden: rejected } }", 1), "[4:62]"},
		"ContractBroken": {strings.Replace(minimal, "./@path", `"./["`, 1),
			`[4:42] contracts[0] "article": key: `},
		"KeyPathBroken": {strings.Replace(minimal, "./@path", `[./@path, "./["]`, 1),
			`[4:52] contracts[0] "article": key[1]: path "./["`},
		"KeyGroup": {strings.Replace(minimal, "./@path", "{ path: ./@path }", 1),
			`[4:42] contracts[0].key: "{" is not a path such as ./@id, or a list of paths`},
		"KeyJoined": {strings.Replace(minimal, "./@path", `./@slug|./@lang`, 1),
			`is not a step; several paths are a list, such as [./@slug, ./@lang]`},
		"ExpressionInBraces": {minimal + "lookups: { find: { get: /items?ref={{ key }} } }\n",
			`{ get: "/items/{{ … }}" }`},
		"RelativeURL": {strings.Replace(minimal, "http://127.0.0.1:7072", "", 1),
			"weir.yaml: [2:18] delivery.url is not an absolute"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := New(newEnvironment(t, c.text), nil)
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("got %v, want an error with %q", err, c.problem)
			}
		})
	}

	t.Run("AllAtOnce", func(t *testing.T) {
		t.Parallel()
		_, err := New(newEnvironment(t, strings.NewReplacer("http:", "ftp:", "./@path }",
			"./@path, onFailure: maybe }").Replace(minimal)+"lanes: 0\nlease: 1s\nretention: 1m\n",
			"AzureWebJobsStorage", "", "WEIR_PREFIX", "No-Good"), nil)

		for _, want := range []string{"AzureWebJobsStorage", "lanes", "lease", "retention", "maybe",
			"absolute http"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("New = %v, want an error with %q", err, want)
			}
		}
	})

	t.Run("UnknownKeysAndOtherProblems", func(t *testing.T) {
		t.Parallel()
		_, err := New(newEnvironment(t, `lanes: 0
maxBodi: 1MiB
delivery: { url: "http://127.0.0.1:7072/api", superseed: true }
calendar: { zone: Mars }
contracts:
  - name: article
    root: article
    key: "./["
    titel: x
    fields: [{ path: ./title, rule: required, typ: number }]
    steps: [{ name: find, get: "/items?ref={{ keyy }}" }]
`), nil)

		for _, want := range []string{`[1:8] lanes is 0`, `[2:1] unknown field "maxBodi"`,
			`[3:47] unknown field "superseed"`,
			`[4:13] unknown field "zone"`, `[8:10] contracts[0] "article": key: `,
			`[9:5] unknown field "titel"`,
			`[10:47] unknown field "typ"`, `keyy is not known here`} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("New = %v, want an error with %q", err, want)
			}
		}
	})
}

func TestLoadSettings_WithoutTheFile(t *testing.T) {
	t.Parallel()
	_, err := loadSettings(newEnvironment(t, minimal, "WEIR_CONFIG", "mine.yaml"))
	for _, want := range []string{"mine.yaml cannot be read: ", "no such file", "WEIR_CONFIG"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestLoadSettings_NothingButComments(t *testing.T) {
	t.Parallel()
	s, err := loadSettings(newEnvironment(t, "# delivery:\n"))
	if err == nil || err.Error() != "delivery.url is missing: the address of the CMS" ||
		s.Storage == "" {
		t.Errorf("got %v and the storage %q, want the error \"delivery.url is missing: the address of the CMS\" "+
			"alone, "+
			"and a storage", err, string(s.Storage))
	}
}

func TestLoadSettings_NoFile(t *testing.T) {
	t.Parallel()
	if _, err := New(newEnvironment(t, minimal, "WEIR_CONFIG", "other.yaml"), nil); err == nil ||
		!strings.Contains(err.Error(), "other.yaml") {
		t.Errorf("got %v, want an error with \"other.yaml\"", err)
	}
}

func TestLoadSettings_Storage(t *testing.T) {
	t.Parallel()
	const name = "AzureWebJobsStorage"
	for title, c := range map[string]struct {
		variables []string
		want      azure.Identity
		problem   string // part of the error; "" = no error
	}{
		"ConnectionString": {[]string{name + "__accountName", "acct"}, azure.Identity{}, ""},
		"Nothing":          {[]string{name, ""}, azure.Identity{}, name + " is not set"},
		"NoAccount": {[]string{name, "", name + "__credential", "managedidentity"},
			azure.Identity{}, name + " is not set"},
		"Account": {[]string{name, "", name + "__accountName", "acct"},
			azure.Identity{Account: "acct"}, ""},
		"Addresses": {[]string{name, "", name + "__blobServiceUri", "https://b.example/",
			name + "__queueServiceUri",
			"https://q.example/", name + "__tableServiceUri", "https://t.example/"},
			azure.Identity{BlobURL: "https://b.example/", QueueURL: "https://q.example/",
				TableURL: "https://t.example/"}, ""},
		"UserAssigned": {[]string{name, "", name + "__accountName", "acct", name + "__credential",
			"managedIdentity", name + "__clientId", "id"},
			azure.Identity{Account: "acct", Managed: true, ClientID: "id"}, ""},
		"AnotherCredential": {[]string{name, "", name + "__accountName", "acct",
			name + "__credential", "key"},
			azure.Identity{Account: "acct"}, `is "key", and must be managedidentity or empty`},
		"ClientIDWithoutCredential": {[]string{name, "", name + "__accountName", "acct",
			name + "__clientId", "id"},
			azure.Identity{Account: "acct", ClientID: "id"},
			"__credential must be managedidentity"},
	} {
		s, err := loadSettings(newEnvironment(t, minimal, c.variables...))
		if c.problem == "" && err != nil ||
			c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)) ||
			s.Identity != c.want {
			t.Errorf("%s: got %+v (%v), want %+v and an error with %q", title, s.Identity, err,
				c.want, c.problem)
		}
	}

	if _, err := New(newEnvironment(t, minimal, name, "", name+"__blobServiceUri",
		"http://b.example/"), nil); err == nil || !strings.Contains(err.Error(), "https") {
		t.Errorf("an account with one address, which is http: got %v, want an error about https",
			err)
	}
}

func TestSecret_IsNotShown(t *testing.T) {
	t.Parallel()
	const hidden = "AccountKey=c2VjcmV0"
	s := Settings{Storage: hidden}
	s.Delivery.Headers = map[string]secret{"X-Api-Key": hidden}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("settings", "all", s, "one", s.Storage)

	for _, text := range []string{log.String(), fmt.Sprintf("%v %+v %#v", s, s, s)} {
		if strings.Contains(text, hidden) || !strings.Contains(text, "(secret)") {
			t.Errorf("got %v, want no %q and \"(secret)\"", text, hidden)
		}
	}
}
