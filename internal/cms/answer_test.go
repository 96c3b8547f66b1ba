package cms_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/internal/cms"
	"weir/internal/steps"
	"weir/internal/weir"
)

// pages has answers with the status 200 that come from a sign-in, a proxy or a maintenance, by
// their Content-Type.
var pages = []struct{ kind, body string }{
	{"text/html", "<!DOCTYPE html><html><title>Sign in</title></html>"},
	{"text/html; charset=utf-8",
		"\xEF\xBB\xBF\r\n <!doctype HTML PUBLIC '-//W3C//DTD HTML 4.01//EN'>"},
	{"application/xml", "<html xmlns='http://www.w3.org/1999/xhtml'><body/></html>"},
	{"", "<?xml version='1.0'?>\n<!-- a -->\n<?pi?><!-- b\n -->\n<HTML>"},
	{"text/html", "<head><title>Maintenance</title></head>"},
	{"text/html", "<h1>We are back soon</h1>"},
	{"text/html", "<script>location='/login'</script>"},
	{"text/html; charset=UTF-8",
		"<br />\n<b>Fatal error</b>:  Uncaught PDOException in /srv/cms/db.php on line 7"},
	{"text/html", "<noscript>Enable JavaScript and cookies to continue</noscript>"},
	{"text/html", "<!-- maintenance -->\n<div class='box'>back soon</div>"},
	{"text/html; charset=utf-16le", "<\x00h\x00t\x00m\x00l\x00>\x00"},
}

// answers has answers with the status 200 that are no page.
var answers = []struct{ kind, body string }{
	{"text/html", "OK"}, {"text/html", "<saved/>"}, {"text/html", `{"html":"<html>"}`},
	{"text/html", ""},
	{"application/xml", "<?xml version='1.0'?><div/>"}, {"text/xml", "<htmlBlock/>"},
	{"text/plain", "id 7: <html>"},
	{"application/xml", "<!DOCTYPE article><article/>"},
}

func TestClassify_APageIsNoDelivery(t *testing.T) {
	t.Parallel()
	classify := func(kind, body string, rules cms.Rules) weir.Result {
		return cms.Classify(cms.Answer{Status: 200, Header: http.Header{"Content-Type": {kind}},
			Body: []byte(body)}, rules, time.Now())
	}

	for _, p := range pages {
		if r := classify(p.kind, p.body, cms.Rules{}); r.Outcome != weir.OutcomeRetry ||
			!strings.Contains(r.Reason, cms.ForeignPage) {
			t.Errorf("%s %q: got %s because of %q, want a retry because of the page", p.kind,
				p.body, r.Outcome, r.Reason)
		}

		if r := classify(p.kind, p.body, cms.Rules{ReadsBody: true}); r.Outcome !=
			weir.OutcomeDelivered {
			t.Errorf("%s %q, which is read: got %s, want delivered", p.kind, p.body, r.Outcome)
		}

		if r := classify(p.kind, p.body, cms.Rules{Success: regexp.MustCompile("<")}); r.Outcome !=
			weir.OutcomeDelivered {
			t.Errorf("%s %q, which fits success: got %s, want delivered", p.kind, p.body, r.Outcome)
		}
	}

	for _, a := range answers {
		if r := classify(a.kind, a.body, cms.Rules{}); r.Outcome != weir.OutcomeDelivered {
			t.Errorf("%s %q: got %s because of %q, want delivered", a.kind, a.body,
				r.Outcome, r.Reason)
		}
	}
}

func TestAnswer_Text(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, body, want string }{
		{"text/plain; charset=windows-1252", "\x93abc\x94 \xfc", "“abc” ü"},
		{"text/plain; charset=ISO-8859-1", "Stra\xdfe", "Straße"},
		{"text/plain; charset=windows-1251", "\xcf\xf0\xe8\xe2\xe5\xf2", "Привет"},
		{"text/plain; charset=Shift_JIS", "\x93\xfa\x96\x7b", "日本"},
		{"text/plain; charset=utf-16", "\xff\xfea\x00b\x00", "ab"},
		{"text/plain", "\xff\xfea\x00b\x00", "ab"},
		{"text/plain; charset=utf-8", "\xfe\xff\x00a\x00b", "ab"},
		{"text/plain; charset=windows-1252", "Straße", "Straße"}, // the header is wrong
		{"text/plain; charset=utf-8", "\xEF\xBB\xBFabc", "abc"},
		{"text/plain; charset=utf-16le", "a\x00b\x00", "ab"},
		{"text/plain; charset=utf-16", "a\x00b\x00", "a\x00b\x00"}, // the order is unknown
		{"text/plain; charset=iso-2022-jp", "\x1b$B9A\x1b(B\x1b(B", "港"},
		{"text/plain; charset=gb2312", "\xb8\xdb", "港"},
		{"text/plain; charset=windows-31j", "\xfb\xfc", "髙"},
		{"text/plain; charset=iso-8859-1", "\x93", "\u0093"}, // as in messages
		{"text/plain; charset=windows-1253", "\xd2 \xe1", "\xd2 \xe1"},
		{"text/plain; charset=klingon", "abc", "abc"},
		{"", "abc", "abc"},
	} {
		a := cms.Answer{Header: http.Header{"Content-Type": {c.kind}}, Body: []byte(c.body)}
		if got := a.Text(); got != c.want {
			t.Errorf("%s %q: got %q, want %q", c.kind, c.body, got, c.want)
		}
	}

	a := cms.Answer{IsCut: true, Body: []byte("\x93\xfa\x96"), // cut within a character
		Header: http.Header{"Content-Type": {"text/plain; charset=Shift_JIS"}}}
	if got := a.Text(); got != "日" {
		t.Errorf("cut: got %q, want 日", got)
	}

	a = cms.Answer{Status: 422,
		Header: http.Header{"Content-Type": {"text/plain; charset=windows-1252"}},
		Body:   []byte("\x93abc\x94")}
	r := cms.Classify(a, cms.Rules{}, time.Now())
	if want := "422 Unprocessable Entity: “abc”"; r.Reason != want || r.Body != "“abc”" {
		t.Errorf("got the reason %q and the body %q, want %q", r.Reason, r.Body, want)
	}
}

func TestParseRetryAfter_RoundsUp(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{
		"1.5": 2 * time.Second, "0.001": time.Second, "\x207\x20": 7 * time.Second,
		"7": 7 * time.Second, "3600.1": time.Hour,
		"1e300": time.Hour, "1e999": time.Hour, "-1.5": 0, "NaN": 0, "Inf": time.Hour, "0": 0,
		"": 0, "1,5": 0,
	} {
		if got := cms.ParseRetryAfter(value, time.Now()); got != want {
			t.Errorf("%q: got %s, want %s", value, got, want)
		}
	}
}

// The end of a text that was cut off is marked, also if the cut part of the answer shrinks to one
// short line.
func TestClassify_MarksACutReason(t *testing.T) {
	t.Parallel()
	body := "secret" + strings.Repeat(" ", 3000) + "value"
	r := cms.Classify(cms.Answer{Status: 422, Header: http.Header{}, Body: []byte(body)},
		cms.Rules{}, time.Now())
	if !strings.HasSuffix(r.Reason, "…") {
		t.Errorf("got the reason %q, want an ellipsis at its end", r.Reason)
	}
}

// The CMS sends the status and a part of the body, and works on until the timeout. The lane must
// wait for the settle time.
func TestSender_Send_AnswerCutByTheTimeoutSettles(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "begun, ")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))

	t.Cleanup(server.Close)
	client := newClient(t, server.URL, func(c *steps.Config) { c.Timeout = 100 * time.Millisecond })
	if r := client.Send(context.Background(), newDelivery()); !r.Unanswered {
		t.Errorf("got %+v, want it Unanswered", r)
	}
}

// Over HTTP/2 the client refuses headers that are larger than the CMS accepts, and over HTTP/1.1
// the CMS answers 431. In both cases the message is rejected.
func TestSender_Send_HeadersOverTheLimit(t *testing.T) {
	t.Parallel()
	for _, isHTTP2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		server.Config.MaxHeaderBytes = 16 << 10
		server.EnableHTTP2 = isHTTP2
		server.StartTLS()
		t.Cleanup(server.Close)
		client := newClient(t, server.URL+"/{key}",
			func(c *steps.Config) { c.Transport = server.Client().Transport })
		d := newDelivery()

		// the client learns the limit
		if r := client.Send(t.Context(), d); r.Outcome != weir.OutcomeDelivered {
			t.Fatalf("HTTP/2 %v: got %+v, want delivered", isHTTP2, r)
		}

		d.Message.Key = strings.Repeat("long", 10_000)
		if r := client.Send(t.Context(), d); r.Outcome != weir.OutcomeRejected {
			t.Errorf("HTTP/2 %v: got %s because of %q, want rejected", isHTTP2, r.Outcome, r.Reason)
		}
	}
}

// net/http refuses the request before it looks for a connection.
func TestSender_Send_RequestThatCannotBeSent(t *testing.T) {
	t.Parallel()
	d := newDelivery()
	d.Message.ContentType = "text/xml\r\nX: y"
	r := newClient(t, "http://127.0.0.1:1/").Send(t.Context(), d)
	if r.Outcome != weir.OutcomeRejected ||
		!strings.Contains(r.Reason, "the request cannot be sent") {
		t.Errorf("got %s because of %q, want rejected", r.Outcome, r.Reason)
	}
}
