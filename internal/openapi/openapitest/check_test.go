package openapitest_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"weir/internal/openapi"
	"weir/internal/openapi/openapitest"
)

func readDocument(t *testing.T) *openapitest.Document {
	t.Helper()
	d, err := openapitest.Read(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

const (
	receipt = `{"id":"AQAB","stage":"queued","key":"/a","lane":0,"sequence":1,"acceptedAt":"2026-01-08T12:00:00Z",` +
		`"duplicate":false}`
	gone = `{"type":"about:blank","title":"Not Found","status":404}`
	away = `{"type":"about:blank","title":"Service Unavailable","status":503}`
)

func TestDocument_Check(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	for name, c := range map[string]struct {
		method, address, sent string
		status                int
		headers               map[string]string
		received              string
		finds                 string // a part of the expected difference; empty = no difference
	}{
		"OK": {"POST", "/api/messages", "<a/>", 202,
			map[string]string{"Location": "http://w/api/messages/x",
				"Content-Type": "application/json"}, receipt, ""},
		"ACode": {"POST", "/api/messages?code=s", "<a/>", 202,
			map[string]string{"Location": "http://w/api/messages/x",
				"Content-Type": "application/json"}, receipt, ""},
		"NoLocation": {"POST", "/api/messages", "<a/>", 202,
			map[string]string{"Content-Type": "application/json"}, receipt,
			"header Location is missing"},
		"ARelativeLocation": {"POST", "/api/messages", "<a/>", 202,
			map[string]string{"Location": "/x", "Content-Type": "application/json"}, receipt,
			"header Location"},
		"UnknownField": {"POST", "/api/messages", "<a/>", 202,
			map[string]string{"Location": "http://w/", "Content-Type": "application/json"},
			strings.Replace(receipt, "{", `{"secret":1,`, 1), "secret"},
		"MissingField": {"POST", "/api/messages", "<a/>", 202,
			map[string]string{"Location": "http://w/", "Content-Type": "application/json"},
			strings.Replace(receipt, `"lane":0,`, "", 1), "lane"},
		"AnUnknownStage": {"POST", "/api/messages", "<a/>", 202,
			map[string]string{"Location": "http://w/", "Content-Type": "application/json"},
			strings.Replace(receipt, "queued", "stuck", 1), "stage"},
		"MalformedTime": {"POST", "/api/messages", "<a/>", 202,
			map[string]string{"Location": "http://w/", "Content-Type": "application/json"},
			strings.Replace(receipt, "2026-01-08T", "", 1), "acceptedAt"},
		"AnotherStatus": {"POST", "/api/messages", "<a/>", 201,
			map[string]string{"Content-Type": "application/json"}, receipt, "status 201"},
		"AnotherType": {"POST", "/api/messages", "<a/>", 202,
			map[string]string{"Location": "http://w/", "Content-Type": "text/html"}, receipt,
			"text/html"},
		"AnotherParameter": {"POST", "/api/messages?when=now", "<a/>", 202,
			map[string]string{"Location": "http://w/", "Content-Type": "application/json"}, receipt,
			"parameter when"},
		"ABadParameter": {"GET", "/api/messages?limit=0", "", 200,
			map[string]string{"Content-Type": "application/json"},
			`{"messages":[],"looked":0,"complete":true}`,
			"limit"},
		"ALine": {"GET", "/api/messages?limit=9", "", 200,
			map[string]string{"Content-Type": "application/json"},
			`{"messages":[{"id":"A","stage":"dead","contract":"a","key":"","lane":0,"sequence":1,"attempts":1,` +
				`"acceptedAt":"2026-01-08T12:00:00Z","size":3}],"looked":1,"complete":true}`, ""},
		"ALineWithALog": {"GET", "/api/messages", "", 200,
			map[string]string{"Content-Type": "application/json"},
			`{"messages":[{"id":"A","stage":"dead","contract":"a","key":"","lane":0,"sequence":1,"attempts":1,` +
				`"acceptedAt":"2026-01-08T12:00:00Z","size":3,"attemptLog":[]}],"looked":1,"complete":true}`,
			"attemptLog"},
		"UnknownAddress":           {"GET", "/api/secrets", "", 200, nil, "", "not described"},
		"UnknownMethod":            {"PATCH", "/api/lanes", "", 200, nil, "", "not described"},
		"UnknownAddressIsNotFound": {"GET", "/api/secrets", "", 404, nil, "", ""},
		"UnexpectedBody":           {"HEAD", "/api/health", "", 200, nil, "x", "a body of 1 bytes"},
		"TheHostFails":             {"GET", "/api/lanes", "", 500, nil, "", ""},
		"NoProblem": {"GET", "/api/messages/x", "", 404,
			map[string]string{"Content-Type": "text/plain"}, "404", "text/plain"},
		"AProblem": {"GET", "/api/messages/x", "", 404,
			map[string]string{"Content-Type": "application/problem+json"}, gone, ""},
		"NoRetryAfter": {"GET", "/api/messages/x", "", 503,
			map[string]string{"Content-Type": "application/problem+json"}, away,
			"Retry-After is missing"},
		"RetryAfterZero": {"GET", "/api/messages/x", "", 503,
			map[string]string{"Content-Type": "application/problem+json", "Retry-After": "0"}, away,
			"Retry-After"},
		"TheHostIsAway": {"GET", "/api/messages/x", "", 503,
			map[string]string{"Content-Type": "text/plain"}, "Function host is not running.", ""},
		"UndescribedBodyAccepted": {"POST", "/api/resume", `{"everything":true}`, 200,
			map[string]string{"Content-Type": "application/json"}, `{"pauses":[]}`, "everything"},
		"DescribedBodyAccepted": {"POST", "/api/resume", `{"key":"/a"}`, 200,
			map[string]string{"Content-Type": "application/json"},
			`{"pauses":[{"scope":"lane","lane":1,"reason":"r","since":"2026-01-08T12:00:00Z"}]}`,
			""},
		"AnyPage": {"GET", "/api/dashboard/a/b?x=1", "", 200,
			map[string]string{"Content-Type": "text/html; charset=utf-8"}, "<p>", ""},
		"LongerAddressMatches": {"GET", "/api/messages/x/attempts", "", 200,
			map[string]string{"Content-Type": "application/json"}, receipt, "count"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := http.Header{}
			for name, value := range c.headers {
				header.Set(name, value)
			}

			found := d.Check(openapitest.Exchange{Request: httptest.NewRequest(c.method, c.address, nil),
				Sent: []byte(c.sent), Status: c.status, Header: header,
				Received: []byte(c.received)})
			if text := strings.Join(found, "; "); (text == "") != (c.finds == "") ||
				!strings.Contains(text, c.finds) {
				t.Errorf("got the differences %q, want %q", text, c.finds)
			}
		})
	}
}

func TestRead_Refuses(t *testing.T) {
	t.Parallel()
	whole := string(openapi.Document)
	if strings.Count(whole, "description: 'The reason, without the parts that differ from message to message.'") != 1 {
		t.Error("want the description of the case LooseComma exactly once in the document")
	}

	for name, text := range map[string]string{
		"NoYAML":   "a: b: c",
		"NoObject": "- 1",
		"LooseEnd": strings.Replace(whole, "'#/components/schemas/Stage'",
			"'#/components/schemas/Stages'", 1),
		"BadSchema": strings.Replace(whole, "p50: { type: number", "p50: { type: whole", 1),
		"LooseComma": strings.Replace(whole,
			"description: 'The reason, without the parts that differ from message "+"to message.'",
			"description: The reason, without the parts that differ from message to message.", 1),
		"BadPattern": strings.Replace(whole, "pattern: '^[0-9a-f]{12}$'", "pattern: '^[0-9'", 1),
	} {
		if _, err := openapitest.Read([]byte(text)); err == nil {
			t.Errorf("%s: Read returned no error, want one", name)
		}
	}
}

func TestTransport(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("{}")) }))
	t.Cleanup(s.Close)
	transport := &openapitest.Transport{Document: readDocument(t), Base: s.Client().Transport}
	client := &http.Client{Transport: transport}
	post := func(path string) {
		resp, err := client.Post(s.URL+path, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}

	var reports []string
	stop := transport.Watch(strings.TrimPrefix(s.URL, "http://"),
		func(text string) { reports = append(reports, text) })
	post("/other")

	if post("/api/none?code=s3cret"); len(reports) != 1 || strings.Contains(reports[0], "s3cret") ||
		!strings.Contains(reports[0], "/api/none") {
		t.Errorf(`got the reports %q, want one with "/api/none" and without "s3cret" in it`,
			reports)
	}

	if n := len(transport.Missing()); n != len(transport.Document.Operations()) {
		t.Errorf("Missing returned %d operations before a described one was requested, want all %d",
			n, len(transport.Document.Operations()))
	}

	if post("/api/resume"); slices.Contains(transport.Missing(), "POST /api/resume") ||
		len(transport.Missing()) != len(transport.Document.Operations())-1 {
		t.Errorf("Missing returned %v, want all operations except POST /api/resume",
			transport.Missing())
	}

	stop()
	reports = reports[:1]
	if post("/api/none"); len(reports) != 1 || len(transport.Others()) != 1 {
		t.Errorf("got the reports %q and the others %q, want one of each", reports,
			transport.Others())
	}
}
