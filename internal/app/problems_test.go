package app

import (
	"strings"
	"testing"
)

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

func TestLoadSettings_NoFile(t *testing.T) {
	t.Parallel()
	if _, err := New(newEnvironment(t, minimal, "WEIR_CONFIG", "other.yaml"), nil); err == nil ||
		!strings.Contains(err.Error(), "other.yaml") {
		t.Errorf("got %v, want an error with \"other.yaml\"", err)
	}
}

func TestNew_StorageWithoutTLS(t *testing.T) {
	t.Parallel()
	const name = "AzureWebJobsStorage"
	_, err := New(newEnvironment(t, minimal, name, "", name+"__blobServiceUri", "http://b.example/"),
		nil)
	if err == nil || !strings.Contains(err.Error(), "https") {
		t.Errorf("an account with one address, which is http: got %v, want an error about https",
			err)
	}
}
