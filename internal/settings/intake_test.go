package settings

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// withRabbitMQ returns the minimal settings with these lines in the group intake.rabbitmq.
func withRabbitMQ(lines string) string {
	return strings.TrimRight(minimal, "\n") + "\nintake:\n  rabbitmq:\n" + lines
}

func TestLoadSettings_RabbitMQ(t *testing.T) {
	t.Parallel()
	s, err := Load(newEnvironment(t,
		withRabbitMQ("    url: ${BROKER}\n    messageId: optional\n"+
			"    deadLetterExchange: dead\n    queues: [{ name: a }, { name: b, consumer: single-active }]\n"),
		"BROKER", "amqps://u:s3cret@broker.example/v"))
	if err != nil {
		t.Fatal(err)
	}

	r := s.Intake.RabbitMQ
	if q := r.ConsumedQueues(); r.PrefetchOrDefault() != 100 || r.RequiresMessageID() ||
		len(q) != 2 ||
		q[0].SingleActive || !q[1].SingleActive ||
		string(r.URL) != "amqps://u:s3cret@broker.example/v" {
		t.Errorf("got %+v with the queues %+v, want the prefetch 100, an optional id and two queues", r, q)
	}
}

// position matches the line and the column in the text of a problem.
var position = regexp.MustCompile(`\[\d+:\d+\] `)

func TestLoadSettings_RabbitMQProblems(t *testing.T) {
	t.Parallel()
	const url, queues = "    url: amqps://u:s3cret@b/v\n", "    queues: [{ name: a }]\n"
	for name, c := range map[string]struct{ lines, want string }{
		"NoURL": {queues, "intake.rabbitmq.url must be the address of the broker"},
		"HTTP": {"    url: http://u:s3cret@b/\n" + queues,
			"] intake.rabbitmq.url must be the address"},
		"NotParsed": {"    url: \"amqp://u:s3cret@[/\"\n" + queues,
			"intake.rabbitmq.url must be the address"},
		"NoQueues": {url, "intake.rabbitmq.queues is missing"},
		"NoName": {url + "    queues: [{ contract: article }]\n",
			"intake.rabbitmq.queues[0].name must have"},
		"LongName": {url + "    queues: [{ name: " + strings.Repeat("q", 256) + " }]\n",
			"must have 1 to 255 bytes"},
		"Twice": {url + "    queues: [{ name: a }, { name: a }]\n",
			"queues[1].name is taken by an earlier queue"},
		"BadContract": {url + "    queues: [{ name: a, contract: x }]\n",
			`queues[0].contract is "x", and there is no such`},
		"Consumer": {url + "    queues: [{ name: a, consumer: any }]\n",
			`queues[0].consumer is "any" and must be`},
		"Prefetch": {url + queues + "    prefetch: 0\n",
			"intake.rabbitmq.prefetch is 0 and must be 1 to 10000"},
		"MessageID": {url + queues + "    messageId: none\n",
			`messageId is "none" and must be required or optional`},
		"Authority": {url + queues + "    tls: { ca: /no/such/file }\n",
			"intake.rabbitmq.tls: ca is neither PEM"},
		"Exchange": {url + queues + "    deadLetterExchange: " + strings.Repeat("e", 256) + "\n",
			"may have 255"},

		"UnknownSetting":         {url + queues + "    prefetchCount: 3\n", "prefetchCount"},
		"UnknownSettingOfAQueue": {url + "    queues: [{ nam: a }]\n", "nam"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Load(newEnvironment(t, withRabbitMQ(c.lines)))
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "s3cret") ||
				!position.MatchString(err.Error()) {
				t.Errorf("got %v, want %q with line and column, and no secret", err, c.want)
			}
		})
	}
}

func TestLoadSettings_Files(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines, problem   string
		quiet, retention Duration
	}{
		"Defaults": {lines: "{}", retention: Duration(30 * 24 * time.Hour)},
		"Set": {lines: "{ quiet: 2m, retention: 1d }", quiet: Duration(2 * time.Minute),
			retention: Duration(24 * time.Hour)},
		"NegativeQuiet": {lines: "{ quiet: -1s }", problem: "quiet"},
		"LongQuiet": {lines: "{ quiet: 25h }",
			problem: "intake.files.quiet is 25h and must be 0s to 24h"},
		"ShortRetention": {lines: "{ retention: 23h }",
			problem: "intake.files.retention is 23h and must be at least 1d"},
		"UnknownSetting": {lines: "{ quite: 1m }", problem: "quite"},
		"FolderWithSlash": {lines: "{ folders: [{ folder: /erp, upstream: a }] }",
			problem: `folders[0].folder is "/erp" and must be a path`},
		"FolderWithDots": {lines: "{ folders: [{ folder: a/../b, upstream: a }] }",
			problem: "must be a path"},
		"NoFolder": {lines: "{ folders: [{ upstream: a }] }",
			problem: `folders[0].folder is "" and must be`},
		"NoUpstream": {lines: "{ folders: [{ folder: erp }] }",
			problem: "folders[0].upstream is missing: a name of upstreams"},
		"Others": {lines: "{ others: no }",
			problem: `intake.files.others is "no" and must be allow or refuse`},
		"OthersAlone": {lines: "{ others: refuse }", problem: "needs intake.files.folders"},
		"FolderInAnother": {lines: "{ folders: [{ folder: erp/x, upstream: a }, { folder: erp, upstream: a }] }",
			problem: `folders[1].folder is "erp" and must not overlap with the earlier "erp/x"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			yaml := strings.TrimRight(minimal, "\n") + "\nintake:\n  files: " + c.lines + "\n"
			s, err := Load(newEnvironment(t, yaml))
			if c.problem != "" {
				if err == nil || !strings.Contains(err.Error(), c.problem) {
					t.Errorf("got %v, want an error with %q", err, c.problem)
				}
				return
			}

			if err != nil {
				t.Fatal(err)
			}

			if f := s.Intake.Files; f.Quiet != c.quiet || f.RetentionOrDefault() != c.retention {
				t.Errorf("got quiet %s and retention %s, want %s and %s", f.Quiet,
					f.RetentionOrDefault(), c.quiet, c.retention)
			}
		})
	}
}
