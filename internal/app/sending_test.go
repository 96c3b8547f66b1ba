//go:build !race || long

package app

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/trial"
	"weir/internal/weir"
)

var updateSending = flag.Bool("update-sending", false, "write testdata/sending.golden anew")

// The file testdata/sending.golden records each request as its bytes on the wire, and the result of
// each attempt, for single requests and for steps: by settings, by message and by the CMS's answer.
// A change of the sender that is not meant to be seen leaves the file as it is.
func TestSending_IsAsRecorded(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	for _, c := range sendingCases {
		fmt.Fprintf(&got, "=== %s\n", c.name)
		recordSending(t, &got, c)
	}

	for _, c := range wrongSendings {
		fmt.Fprintf(&got, "=== wrong: %s\n", c.name)
		_, err := newTestApp(t, c.text)
		fmt.Fprintf(&got, "%v\n", err)
	}

	const golden = "testdata/sending.golden"
	if *updateSending {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}

	compareLines(t, strings.Split(got.String(), "\n"), strings.Split(string(want), "\n"))
}

// compareLines reports the first lines that differ, each with the last title before it.
func compareLines(t *testing.T, got, want []string) {
	t.Helper()
	const most = 10
	title, differ := "", 0
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}

		if i < len(want) {
			w = want[i]
		}

		if strings.HasPrefix(w, "=== ") {
			title = w
		}

		if g == w {
			continue
		}

		if differ++; differ > most {
			t.Fatalf("more lines differ; if this is meant, run the test with -update-sending")
		}

		t.Errorf("%s, line %d:\ngot  %s\nwant %s", title, i+1, g, w)
	}
}

// sendingCase is a settings file whose attempts are recorded.
type sendingCase struct {
	name      string
	text      string
	answers   []sendingAnswer // to the usual message; nil = those to which a sign-in matters
	userInfo  string
	contracts []string // the contract of each message; empty = article
}

const sendingContract = "  - { name: article, root: article, key: ./@path, version: ./@v, " +
	"redact: [./secret]"

const chainOfSending = `
lookups:
  known: { get: "/items?path={{ key }}", success: "json?.items != nil" }
contracts:
` + sendingContract + `, answers: { 404: rejected, 500: unavailable, 418: retry },
      steps: [ { use: known },
        { name: create, when: "len(known.json.items) == 0", post: /items,
            json: { path: "{{ key }}", v: "{{ version }}", title: "{{ text('./title') }}" },
            on: [ { when: status == 422, do: retry, say: "{{ json?.message }}" } ] },
        { name: save, put: "/items/{{ known.json.items[0] }}", body: message,
            headers: { X-Of: "{{ contract }}" } } ] }
`

var sendingCases = []sendingCase{
	{name: "a single request", answers: slices.Concat(specialAnswers, statusAnswers()), text: `
delivery: { url: "${CMS}/content" }
contracts:
` + sendingContract + " }\n", contracts: []string{"article", "unknown"}},
	{name: "a single request with all settings",
		answers: slices.Concat(specialAnswers, statusAnswers()), text: `
delivery:
  url: "${CMS}/c/{key}/{contract}?v={version}&id={id}&k={key}&code=s3cr3t-of-query&n=12"
  method: PUT
  headers: { X-Api-Key: "${KEY}", accept: text/plain, User-Agent: "cms client" }
contracts:
` + sendingContract + `, success: "<ok/>",
      answers: { 404: rejected, 409: unavailable, 500: unavailable, 418: retry } }
`, contracts: []string{"article", "unknown"}},
	{name: "a single request with a redirected placeholder", text: `
delivery: { url: "${CMS}/{version}/x?{key}#f", method: PATCH }
contracts:
` + sendingContract + " }\n"},
	{name: "a single request with a user", userInfo: "editor:topsecret99@", text: `
delivery: { url: "${CMS}/content" }
contracts:
` + sendingContract + " }\n"},
	{name: "a single request with a bearer", text: `
delivery: { url: "${CMS}/content", signIn: { bearer: "${KEY}" } }
contracts:
` + sendingContract + " }\n"},
	{name: "a single request with a sign-in", text: `
delivery: { url: "${CMS}/content", signIn: { steps: [ { post: /token, json: { key: "${KEY}" } } ],
    send: { Authorization: "Bearer {{ step1.headers['x-token'] }}" } } }
contracts:
` + sendingContract + " }\n"},
	{name: "one step", answers: slices.Concat(specialAnswers, statusAnswers()), text: `
delivery: { url: "${CMS}/api?code=s3cr3t-of-query", headers: { X-Api-Key: "${KEY}" } }
contracts:
` + sendingContract + `, steps: [ { put: "/{{ key }}?v={{ version }}", body: message } ] }
`, contracts: []string{"article", "unknown"}},
	{name: "one step with a sign-in", userInfo: "editor:topsecret99@", text: `
delivery: { url: "${CMS}", signIn: { steps: [ { post: /token, json: { key: "${KEY}" } } ],
    send: { Authorization: "Bearer {{ step1.headers['x-token'] }}" } } }
contracts:
` + sendingContract + `, steps: [ { put: "/items", body: message } ] }
`},
	{name: "a chain beside a single request", answers: specialAnswers, text: `
delivery: { url: "${CMS}/api", maxAnswer: 1KiB, retryAfter: X-Reset,
    on: [ { when: status == 499, do: reject } ] }
` + chainOfSending + `  - { name: plain, root: plain, key: ./@path, success: yes, answers: { 400: retry } }
`,
		contracts: []string{"article", "plain"}},
}

var wrongSendings = []struct{ name, text string }{
	{"no address", "delivery: { url: cms }\ncontracts:\n" + sendingContract + " }\n"},
	{"host", "delivery: { url: 'http://{key}.cms/' }\ncontracts:\n" + sendingContract + " }\n"},
	{"user", "delivery: { url: 'http://{key}@cms/' }\ncontracts:\n" + sendingContract + " }\n"},
	{"placeholder", "delivery: { url: 'http://cms/{path}' }\ncontracts:\n" +
		sendingContract + " }\n"},
	{"header", "delivery: { url: 'http://cms/', " +
		"headers: { 'a b': c, Host: a, Content-Type: b, Weir-A: c, d: \"\\n\" } }\n" +
		"contracts:\n" + sendingContract + " }\n"},
	{"placeholder with steps",
		"delivery: { url: 'http://cms/{key}' }\ncontracts:\n" + sendingContract +
			", steps: [ { put: /, body: message } ] }\n"},
	{"success with steps", "delivery: { url: 'http://cms/' }\ncontracts:\n" + sendingContract +
		", success: a, steps: [ { put: /, body: message } ] }\n"},
	{"on without steps", "delivery: { url: 'http://cms/', " +
		"on: [ { when: status == 400, do: retry } ] }\ncontracts:\n" +
		sendingContract + " }\n"},
	{"lookups without steps", "delivery: { url: 'http://cms/' }\n" +
		"lookups: { a: { get: / } }\ncontracts:\n" +
		sendingContract + " }\n"},
	{"authorization twice", "delivery: { url: 'http://cms/', headers: { authorization: a }, " +
		"signIn: { bearer: abcdef } }\n" +
		"contracts:\n" + sendingContract + " }\n"},
	{"success is no expression",
		"delivery: { url: 'http://cms/' }\ncontracts:\n" + sendingContract + ", success: '(' }\n"},
	{"step and placeholder", "delivery: { url: 'http://cms/{key}' }\ncontracts:\n" +
		sendingContract + ", steps: [ { put: /, body: mesage } ] }\n"},
	{"sign-in", "delivery: { url: 'http://cms/{key}', signIn: { cookies: true } }\ncontracts:\n" +
		sendingContract + " }\n"},
}

// recordSending writes the requests and the results of all messages and answers of a settings file.
func recordSending(t *testing.T, out *strings.Builder, c sendingCase) {
	t.Helper()
	server := startRawCMS(t)
	address := "http://" + c.userInfo + server.address
	env := newEnvironment(t, strings.ReplaceAll(c.text, "${CMS}", address), "KEY", "key-0f-header")
	a, found := prepareApp(env, nil)
	if err := found.Settings; err != nil || found.Contracts != nil || found.CMS != nil {
		t.Fatalf("%s: %v %v %v", c.name, err, found.Contracts, found.CMS)
	}

	sender := a.newSender()

	for _, contract := range append(c.contracts, "article")[:max(1, len(c.contracts))] {
		for _, m := range sendingMessages {
			if contract != "article" && m.name != "usual" {
				continue
			}

			fmt.Fprintf(out, "--- message %s of %s\n", m.name, contract)
			answers := specialAnswers[:2]
			switch {
			case m.name != "usual":
			case c.answers == nil:
				answers = slices.Concat(specialAnswers[:7], refusals)
			case contract == "unknown":
				answers = specialAnswers
			default:
				answers = c.answers
			}

			for _, answer := range answers {
				server.setAnswer(answer.text)
				d := weir.Delivery{Message: m.newMessage(contract), Fence: 9, Attempt: m.attempt}
				ctx, cancel := context.WithCancel(t.Context())
				if answer.isCutOff {
					server.onRequest(cancel)
				}

				result := sender.Send(ctx, d)
				cancel()
				server.writeNewRequests(out)
				fmt.Fprintf(out, "%s: %s\n", answer.name, server.hidePort(describeSending(result)))
			}
		}
	}

	server.setAnswer(specialAnswers[0].text)
	recordTrials(t, out, env, server)
}

// recordTrials writes the trials of a message: with answers from a file, without answers, and with
// those of the CMS.
func recordTrials(t *testing.T, out *strings.Builder, env func(string) string, server *rawCMS) {
	t.Helper()
	const body = `<article path="/news/1" v="3"><title>A</title><secret>hidden-value</secret></article>`
	answer := []trial.Answer{{Status: 400, Body: "no <ok/> token=tok-of-answer hidden-value"}}
	fromFile := trial.Answers{Steps: map[string][]trial.Answer{"request": answer, "step1": answer,
		"known": {{Status: 200, JSON: map[string]any{"items": []any{"7"}}}}, "save": answer}}

	for _, isLive := range []bool{false, true} {
		for i, answers := range []trial.Answers{{}, fromFile} {
			trials, err := OpenTrials(env, isLive)
			if err != nil {
				t.Fatal(err)
			}

			trials.RecordAnswers(func(step string, a trial.Answer) {
				fmt.Fprintf(out, "recorded %s: %d %s\n", step, a.Status,
					server.hidePort(strconv.Quote(a.Body)))
			})

			got := trials.Try(t.Context(), "application/xml", []byte(body), answers)
			for j := range got.Steps {
				got.Steps[j].Millis = 0
			}

			text, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}

			shown := hideTrialID(server.hidePort(string(text)))
			fmt.Fprintf(out, "trial %d, live %v: %s\n", i, isLive, shown)
		}
	}

	server.forgetRequests()
}

var trialID = regexp.MustCompile(`AQAB[0-9A-Za-z_-]{14}`)

// hideTrialID replaces the ids of live trials, which are random.
func hideTrialID(text string) string {
	return trialID.ReplaceAllStringFunc(text, func(id string) string {
		if strings.HasSuffix(id, "AAAAAAAA") {
			return id
		}
		return "RANDOM"
	})
}

var run = regexp.MustCompile(`x{30,}|y{30,}|(?:%C3%BC%2F){10,}|(?:ü/){10,}`)

// shortenRuns replaces long repetitions by their lengths.
func shortenRuns(text string) string {
	return run.ReplaceAllStringFunc(text, func(long string) string {
		return fmt.Sprintf("%.3s{%d bytes}", long, len(long))
	})
}

// describeSending returns a result as one line, without its times.
func describeSending(r weir.Result) string {
	words := []string{string(r.Outcome), strconv.Itoa(r.Status)}
	for word, holds := range map[string]bool{"refused": r.Refused, "unanswered": r.Unanswered,
		"unsent": r.Unsent, "ownFault": r.IsOwnFault, "forgotten": r.IsForgotten} {
		if holds {
			words = append(words, word)
		}
	}

	slices.Sort(words[2:])
	if r.RetryAfter != 0 {
		words = append(words, "after "+r.RetryAfter.String())
	}

	for _, s := range r.Steps {
		words = append(words, fmt.Sprintf("[%s %d %q]", s.Name, s.Status, s.Reason))
	}

	return shortenRuns(strings.Join(words, " ") + fmt.Sprintf(" %q %q", r.Reason, r.Body))
}

// sendingMessage is a message whose attempts are recorded.
type sendingMessage struct {
	name    string
	attempt int
	message weir.Message
}

const sendingBody = "<article path=\"/news/ä b?\" v=\"3\">\r\n<title>A &amp; B</title>" +
	"<secret>hidden-value</secret>\r\n</article>"

var sendingMessages = []sendingMessage{
	{"usual", 2, weir.Message{Key: "/news/ä b?", Version: "3",
		ContentType: "application/xml; charset=utf-8",
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		TraceState:  "vendor=a1",
		Body:        []byte(sendingBody)}},
	{"of dots", 1, weir.Message{Key: "..", ContentType: "application/xml",
		Body: []byte("<article path='..'/>")}},
	{"of braces", 1, weir.Message{Key: "{id}/{{ key }}%41&=+", Version: "{key}",
		ContentType: "text/xml", Body: []byte("<article path='a'/>")}},
	{"replayed", 7, weir.Message{Key: "k", Version: "1", Replays: 2,
		Body: []byte("<article path='k' v='1'/>")}},
	{"of a long key", 1, weir.Message{Key: strings.Repeat("ü/", 300), ContentType: "text/xml",
		Body: []byte("<article path='ü'><x>" + strings.Repeat("x", 10_000) + "</x></article>")}},
	{"without a body", 1, weir.Message{Key: "k", ContentType: "text/xml"}},
}

func (m *sendingMessage) newMessage(contract string) *weir.Message {
	message := m.message
	message.ID = weir.ID{Epoch: 1, Lane: 0, Seq: 12, Nonce: "00112233445566778899"}
	message.Contract, message.AcceptedAt = contract, time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	return &message
}

// sendingAnswer is an answer of the CMS, as its bytes. In the text, ECHO stands for the bytes of
// the request.
type sendingAnswer struct {
	name, text string
	isCutOff   bool // Weir cuts the attempt off when the CMS has the request
}

// answerText returns an answer with this body and these headers.
func answerText(status int, body string, headers ...string) string {
	head := strings.Join(append([]string{fmt.Sprintf("HTTP/1.1 %d words", status)}, headers...),
		"\r\n")
	return fmt.Sprintf("%s\r\nContent-Length: LENGTH\r\n\r\n%s", head, body)
}

var specialAnswers = []sendingAnswer{
	{name: "success", text: answerText(200, `{"items":["7"]} <ok/> yes`)},
	{name: "repeats the request", text: answerText(400, "refused ECHO")},
	{name: "repeats the request with 200", text: answerText(200, "ECHO <ok/>")},
	{name: "JSON", text: answerText(200, `{"items":[]}`, "Content-Type: application/json")},
	{name: "JSON of an error",
		text: answerText(400, `{"errors":[{"message":"title is missing"}],"token":"tok-of-answer"}`,
			"Content-Type: application/json")},
	{name: "JSON of a conflict",
		text: answerText(409, `{"message":"is there","access_token":"tok-of-answer"}`,
			"Content-Type: application/json")},
	{name: "XML of an error",
		text: answerText(422, `<?xml version="1.0"?><e><m>t1</m><m>hidden-value</m></e>`,
			"Content-Type: text/xml")},
	{name: "long success",
		text: answerText(200, strings.Repeat("x", 65_531)+"<ok/>"+strings.Repeat("y", 10_000))},
	{name: "longer success",
		text: answerText(200, strings.Repeat("x", 65_532)+"<ok/>"+strings.Repeat("y", 10_000))},
	{name: "long error",
		text: answerText(400, strings.Repeat("x", 20_000)+"key-0f-header"+
			strings.Repeat("y", 60_000))},
	{name: "latin",
		text: answerText(400, "gr\xfc\xdfe <ok/>", "Content-Type: text/plain; charset=iso-8859-1")},
	{name: "success in UTF-16",
		text: answerText(200, "\xff\xfe<\x00o\x00k\x00/\x00>\x00",
			"Content-Type: text/plain; charset=utf-16")},
	{name: "no text", text: answerText(200, "\xff\xfe\xfa <ok/>")},
	{name: "no text of an error", text: answerText(400, "\xff\xfe\xfa\x00\r\nb")},
	{name: "wait of seconds", text: answerText(503, "later", "Retry-After: 7", "X-Reset: 9")},
	{name: "wait of a fraction", text: answerText(429, "later", "Retry-After: 1.5")},
	{name: "long wait", text: answerText(503, "later", "Retry-After: 999999")},
	{name: "wait of words", text: answerText(503, "later", "Retry-After: soon")},
	{name: "wait of a refusal", text: answerText(400, "later", "Retry-After: 7")},
	{name: "verdict", text: answerText(500, "never", "Weir-Retry: never")},
	{name: "verdict of a conflict", text: answerText(409, "never", "Weir-Retry: Never")},
	{name: "verdict of a missing item", text: answerText(404, "never", "Weir-Retry: never")},
	{name: "verdict of a success", text: answerText(200, "<ok/> never", "Weir-Retry: never")},
	{name: "redirect",
		text: answerText(302, "moved", "Location: https://sso.example/login?code=s3cr3t-of-query")},
	{name: "redirect within", text: answerText(307, "moved", "Location: /login")},
	{name: "redirect without scheme", text: answerText(308, "moved", "Location: //sso.example/x")},
	{name: "redirect to nothing", text: answerText(301, "moved", "Location: ")},
	{name: "cookie",
		text: answerText(400, "cookie-of-answer and tok-of-answer",
			"Set-Cookie: sid=cookie-of-answer; Path=/", "X-Auth-Token: tok-of-answer")},
	{name: "page",
		text: answerText(200, "<!doctype html><title>Sign in</title><p>please <ok/>",
			"Content-Type: text/html")},
	{name: "page without a type",
		text: answerText(200, "<!-- a --> <html><body>Sign in</body></html>")},
	{name: "fragment of HTML",
		text: answerText(200, "<h1>Saved <ok/></h1>", "Content-Type: text/html; charset=utf-8")},
	{name: "fragment of an error",
		text: answerText(404, "<b>Not here</b>", "Content-Type: text/html")},
	{name: "two keys",
		text: answerText(409, "duplicate hidden-value key-0f-header", "Retry-After: 3")},
	{name: "reset header", text: answerText(429, "later", "X-Reset: 12")},
	{name: "chunks",
		text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n<ok/>\r\n3\r\nyes\r\n0\r\n\r\n"},
	{name: "informational",
		text: "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" +
			"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<ok/>"},
	{name: "no answer", text: "CLOSE"},
	{name: "no HTTP", text: "SMTP ready\r\n\r\nCLOSE"},
	{name: "half a success", text: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n<ok/> yesCLOSE"},
	{name: "half an error", text: "HTTP/1.1 400 No\r\nContent-Length: 100\r\n\r\nhalf ofCLOSE"},
	{name: "half a head", text: "HTTP/1.1 200 OK\r\nContent-Le" + "CLOSE"},
	{name: "other protocol",
		text: "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: ws\r\n\r\nCLOSE"},
	{name: "cut off", text: "WAIT", isCutOff: true},
}

// refusals are the answers to which a sign-in matters.
var refusals = []sendingAnswer{
	{name: "401", text: answerText(401, "no session", "Set-Cookie: sid=cookie-of-answer")},
	{name: "403", text: answerText(403, "forbidden ECHO")},
	{name: "403 page", text: answerText(403, "<html>forbidden")},
	{name: "403 again", text: answerText(403, "forbidden")},
	{name: "no answer", text: "CLOSE"},
}

// statusAnswers returns an answer for each status that has a meaning somewhere, with no body, a
// text and a page.
func statusAnswers() (answers []sendingAnswer) {
	statuses := []int{200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 299}
	statuses = append(statuses, 300, 301, 302, 303, 304, 305, 307, 308)
	for status := 400; status <= 431; status++ {
		statuses = append(statuses, status)
	}

	statuses = append(statuses, 440, 444, 449, 450, 451, 460, 463, 494, 495, 496, 497, 498, 499)
	for status := 500; status <= 530; status++ {
		statuses = append(statuses, status)
	}

	statuses = append(statuses, 561, 598, 599, 600, 700, 999)
	for _, status := range statuses {
		for _, body := range []string{"", "words of the CMS",
			"<html><title>Error</title><body>of a proxy"} {
			hasNoBody := status == 204 || status == 304
			if hasNoBody && body != "" {
				continue
			}

			text := answerText(status, body)
			if hasNoBody {
				text = fmt.Sprintf("HTTP/1.1 %d words\r\n\r\n", status)
			}

			answers = append(answers,
				sendingAnswer{name: fmt.Sprintf("%d %.7s", status, body), text: text})
		}
	}

	return answers
}
