package settings

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/fold"
	"weir/internal/storage/azure"
	"weir/internal/testkit/settings"
)

func TestLoadSettings_Defaults(t *testing.T) {
	t.Parallel()
	s, err := Load(newEnvironment(t, minimal))
	if err != nil {
		t.Fatal(err)
	}

	if s.Prefix != "weir" || s.Lanes != 1 || s.MaxBody != 1<<20 ||
		s.Retention != Duration(7*24*time.Hour) ||
		s.DeadRetention != Duration(90*24*time.Hour) ||
		s.SettleTime() != 3*time.Second || s.Delivery.Attempts != 5 ||
		s.Delivery.Method != "POST" ||
		s.TicketDelay.Max != Duration(10*time.Second) ||
		s.Delivery.Patience != Duration(24*time.Hour) {
		t.Errorf("got %+v, want the defaults that docs/settings.md lists", s)
	}
}

func TestLoadSettings_Fold(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fold.Rules{"": 0, "fold: []\n": 0,
		"fold: [accents]\n": fold.Accents, "fold:\n  - nfc\n  - case\n": fold.NFC | fold.Case} {
		s, err := Load(newEnvironment(t, minimal+text))
		if err != nil || s.Fold.Rules != want {
			t.Errorf("%s: got %v, %v, want %v", text, s.Fold.Rules, err, want)
		}
	}
}

func TestLoadSettings_Answers(t *testing.T) {
	t.Parallel()
	s, err := Load(newEnvironment(t, strings.Replace(minimal, "./@path }",
		"./@path, answers: { 403: rejected, 404: retry } }", 1)))
	if err != nil || len(s.Contracts) == 0 ||
		!maps.Equal(s.Contracts[0].Answers, map[int]string{403: "rejected", 404: "retry"}) {
		t.Errorf("got %+v (%v), want answers 403: rejected and 404: retry", s.Contracts, err)
	}
}

func TestLoadSettings_TheTestsOwnFile(t *testing.T) {
	t.Parallel()
	s, err := Load(newEnvironment(t, settings.YAML, "WEIR_CMS_URL",
		"http://127.0.0.1:7072/api/content"))
	if err != nil || s.Delivery.URL != "http://127.0.0.1:7072/api/content" ||
		len(s.Contracts) != 2 {
		t.Errorf("got %+v (%v), want the URL of WEIR_CMS_URL and two contracts", s, err)
	}
}

func TestLoadSettings_NoPrefixUnderAHost(t *testing.T) {
	t.Parallel()
	_, err := Load(newEnvironment(t, minimal, "FUNCTIONS_CUSTOMHANDLER_PORT", "40001"))
	if err == nil || strings.Count(err.Error(), "\n") != 0 || !strings.Contains(err.Error(),
		"set the app setting WEIR_PREFIX") {
		t.Errorf("got %v, want one line that names WEIR_PREFIX", err)
	}

	s, err := Load(newEnvironment(t, minimal, "FUNCTIONS_CUSTOMHANDLER_PORT", "40001",
		"WEIR_PREFIX", "news"))
	if err != nil || s.Prefix != "news" {
		t.Errorf("got the prefix %q, %v; want news and no error", s.Prefix, err)
	}
}

func TestLoadSettings_AValueFromTheEnvironmentCannotBecomeYAML(t *testing.T) {
	t.Parallel()
	s, err := Load(newEnvironment(t,
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
		s, err := Load(newEnvironment(t, text, "X", value))
		if h := s.Delivery.Headers; err != nil || string(h["A"]) != value ||
			string(h["B"]) != "Bearer "+value+"." {
			t.Errorf("%s: got %q (%v), want %q in both headers", written, h, err, value)
		}
	}
}

func TestLoadSettings_ANumberFromTheEnvironment(t *testing.T) {
	t.Parallel()
	s, err := Load(newEnvironment(t, "lanes: ${LANES}\nlease: ${LEASE}\n"+minimal, "LANES",
		"9", "LEASE", "20s"))
	if err != nil || s.Lanes != 9 || time.Duration(s.Lease) != 20*time.Second {
		t.Errorf("got lanes %d and lease %s (%v), want 9 and 20s", s.Lanes, s.Lease, err)
	}
}

func TestLoadSettings_Rates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"5/s": 200 * time.Millisecond,
		"90 / m": time.Minute / 90, "1/m": time.Minute} {
		s, err := Load(newEnvironment(t, strings.Replace(minimal, "delivery: {",
			"delivery: { maxConcurrent: 3, rate: "+text+",", 1)))
		if err != nil || s.Delivery.Rate.Interval() != want || s.Delivery.MaxConcurrent != 3 {
			t.Errorf("%s: got the interval %s and maxConcurrent %d (%v), want %s and 3", text,
				s.Delivery.Rate.Interval(),
				s.Delivery.MaxConcurrent, err, want)
		}
	}
}

func TestLoadSettings_BackoffAsAList(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"[10s, 1m, 1d]", "\n    - 10s\n    - 1m\n    - 1d\n "} {
		text := "contracts: [{ name: a, root: a }]\ndelivery:\n  url: http://127.0.0.1:1/\n  backoff: " + list + "\n"
		s, err := Load(newEnvironment(t, text))
		if err != nil || !slices.Equal(s.BackoffConfig().Steps,
			[]time.Duration{10 * time.Second, time.Minute, 24 * time.Hour}) {
			t.Errorf("got the backoff %v (%v), want the steps 10s, 1m, 1d", s.BackoffConfig(), err)
		}
	}
}

func TestLoadSettings_Notify(t *testing.T) {
	t.Parallel()
	text := minimal + `
notify:
  - url: "https://ops.example.com/weir"
    secret: ${NOTIFY}
    events: [message.dead, lane.behind]
    contracts: [article]
    behindBy: 1h
  - { url: "https://ops.example.com/now", secret: ${NOTIFY}, events: [lane.paused], pausedFor: 0s }
callbacks: { allowedHosts: [hooks.example.com, "*.example.org"], secret: "${CALLBACKS}" }
`

	const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	s, err := Load(newEnvironment(t, text, "NOTIFY", key, "CALLBACKS", key+" "+key))
	if err != nil {
		t.Fatal(err)
	}

	receivers, _ := s.EventReceivers()
	callbacks, _ := s.CallbackRules()

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
	s, err := Load(newEnvironment(t, minimal+`
callbacks:
  secret: ${SHARED}
  allowedHosts: [a.example, { host: b.example, secret: "${OWN}" }, {host: "*.example.org"}]
`, "SHARED", shared, "OWN", own))
	if err != nil {
		t.Fatal(err)
	}

	c, problems := s.CallbackRules()
	if want := []string{"a.example", "b.example", "*.example.org"}; !slices.Equal(c.AllowedHosts, want) ||
		len(problems) > 0 {
		t.Errorf("got the hosts %v and the problems %v, want %v and none", c.AllowedHosts,
			problems, want)
	}

	if len(c.HostSecrets) != 1 || c.HostSecrets["b.example"].String() != "(secret)" {
		t.Errorf("got the secrets %v, want one for b.example, printed as (secret)", c.HostSecrets)
	}

	got := s.ListWarnings()
	if len(got) != 1 || !strings.Contains(got[0], "a.example and *.example.org have one secret") {
		t.Errorf("got the warnings %q, want one about the two hosts with the same secret", got)
	}

	if _, err = Load(newEnvironment(t,
		minimal+"callbacks: { allowedHosts: [{ host: b.example, "+
			"secret: "+own+" }] }\n")); err != nil {
		t.Errorf("each host has its secret: got %v, want no error", err)
	}
}

func TestLoadSettings_SecretsDoNotPrint(t *testing.T) {
	t.Parallel()
	s, err := Load(newEnvironment(t, minimal, "AzureWebJobsStorage", "AccountKey=hunter2"))
	if text := fmt.Sprintf("%v %+v %#v", s, s, s); err != nil || strings.Contains(text, "hunter2") {
		t.Errorf("got %s (%v), want no secret in it", text, err)
	}
}

func TestLoadSettings_WithoutTheFile(t *testing.T) {
	t.Parallel()
	_, err := Load(newEnvironment(t, minimal, "WEIR_CONFIG", "mine.yaml"))
	for _, want := range []string{"mine.yaml cannot be read: ", "no such file", "WEIR_CONFIG"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestLoadSettings_NothingButComments(t *testing.T) {
	t.Parallel()
	s, err := Load(newEnvironment(t, "# delivery:\n"))
	if err == nil || err.Error() != "delivery.url is missing: the address of the CMS" ||
		s.Storage == "" {
		t.Errorf("got %v and the storage %q, want the error \"delivery.url is missing: the address of the CMS\" "+
			"alone, "+
			"and a storage", err, string(s.Storage))
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
		s, err := Load(newEnvironment(t, minimal, c.variables...))
		if c.problem == "" && err != nil ||
			c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)) ||
			s.Identity != c.want {
			t.Errorf("%s: got %+v (%v), want %+v and an error with %q", title, s.Identity, err,
				c.want, c.problem)
		}
	}
}

func TestSecret_IsNotShown(t *testing.T) {
	t.Parallel()
	const hidden = "AccountKey=c2VjcmV0"
	s := Settings{Storage: hidden}
	s.Delivery.Headers = map[string]Secret{"X-Api-Key": hidden}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("settings", "all", s, "one", s.Storage)

	for _, text := range []string{log.String(), fmt.Sprintf("%v %+v %#v", s, s, s)} {
		if strings.Contains(text, hidden) || !strings.Contains(text, "(secret)") {
			t.Errorf("got %v, want no %q and \"(secret)\"", text, hidden)
		}
	}
}
