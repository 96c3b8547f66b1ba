package steps_test

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/steps"
	"weir/internal/weir"
)

const html = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: "

// strangeAnswers are bytes that no settings name, by a word for them. None of them is a success or
// a verdict about the message.
var strangeAnswers = map[string]string{
	"Nothing":            "",
	"NoHTTP":             "220 mail.example ESMTP\r\n",
	"HTTP09":             "<html>hello</html>",
	"Icecast":            "ICY 200 OK\r\n\r\nsaved",
	"StatusOfTwoDigits":  "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
	"StatusOfFourDigits": "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
	"Status000":          "HTTP/1.1 000 Nothing\r\nContent-Length: 2\r\n\r\nno",
	"Status099":          "HTTP/1.1 099 Low\r\nContent-Length: 2\r\n\r\nno",
	"NegativeStatus":     "HTTP/1.1 -22 No\r\nContent-Length: 0\r\n\r\n",
	"EarlyHints":         "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
	"SwitchingProtocols": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nbytes",
	"ManyHints":          strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 2000),
	"PartialContent":     "HTTP/1.1 206 Partial Content\r\nContent-Length: 2\r\n\r\n{}",
	"MultiStatus":        "HTTP/1.1 207 Multi-Status\r\nContent-Length: 2\r\n\r\n{}",
	"IMUsed":             "HTTP/1.1 226 IM Used\r\nContent-Length: 2\r\n\r\n{}",
	"Persistent":         "HTTP/1.1 299 Own\r\nContent-Length: 2\r\n\r\nno",
	"Loop":               "HTTP/1.1 302 Found\r\nLocation: /a\r\nContent-Length: 2\r\n\r\nno",
	"NotModified":        "HTTP/1.1 304 Not Modified\r\n\r\n",
	"Teapot":             "HTTP/1.1 418 I'm a teapot\r\nContent-Length: 2\r\n\r\nno",
	"LegalReasons":       "HTTP/1.1 451 Unavailable\r\nContent-Length: 2\r\n\r\nno",
	"Status599":          "HTTP/1.1 599 Own\r\nContent-Length: 2\r\n\r\nno",
	"Status600":          "HTTP/1.1 600 Own\r\nContent-Length: 2\r\n\r\nno",
	"Status999":          "HTTP/1.1 999 Request denied\r\nContent-Length: 2\r\n\r\nno",
	"BadRequestByServer": "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
	"EndsInHeader":       "HTTP/1.1 200 OK\r\nContent-Ty",
	"LongHeader": "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("a", 11<<20) +
		"\r\n\r\nsaved",
	"ManyHeaders": "HTTP/1.1 200 OK\r\n" +
		strings.Repeat("X-A: aaaaaaaaaaaaaaaaaaaaaaa\r\n", 400_000) +
		"\r\nsaved",
	"HeaderWithoutColon":  "HTTP/1.1 200 OK\r\nwhat is this\r\n\r\nsaved",
	"TwoLengths":          "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\nsaved",
	"NegativeLength":      "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nsaved",
	"EndsInBody":          "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nsaved",
	"EndsInChunk":         "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"id\":7",
	"NoLastChunk":         "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{\"id\":7}\r\n",
	"NoChunks":            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nsaved",
	"UnknownTransfer":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nsaved",
	"NoGzip":              "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nsaved",
	"Brotli":              "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 5\r\n\r\n\x0b\x02\x80ab",
	"CutJSON":             "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{\"id\":7,",
	"CutJSONOfTextType":   "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n[{\"id\":7}",
	"CutXML":              "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<?xml version=\"1.0\"?>\n<saved><id>7</id>",
	"Problem":             "HTTP/1.1 200 OK\r\nContent-Type: application/problem+json\r\nContent-Length: 2\r\n\r\n{}",
	"SignInPage":          html + "19\r\n\r\n<html>Sign in</html",
	"SignInPageAsJSON":    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 6\r\n\r\n<html>",
	"ErrorOfPHP":          html + "21\r\n\r\n<br />\n<b>Fatal</b>: ",
	"SignInPageInUTF16LE": html + "14\r\n\r\n\xff\xfe<\x00h\x00t\x00m\x00l\x00>\x00",
}

// serveBytes answers each request with the same bytes, and then closes the connection.
func serveBytes(t *testing.T, text string) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			go func() {
				defer conn.Close()
				if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					req.Body.Close()
					_, _ = conn.Write([]byte(text))
				}
			}()
		}
	}()

	return "http://" + listener.Addr().String()
}

func TestSender_StrangeAnswersAreNoVerdict(t *testing.T) {
	t.Parallel()
	for name, text := range strangeAnswers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := serveBytes(t, text)
			check := func(kind string, r weir.Result) {
				if r.Outcome != weir.OutcomeRetry && r.Outcome != weir.OutcomeUnavailable ||
					r.Reason == "" {
					t.Errorf("%s: got %s because of %q, want a retry or unavailable, and a reason",
						kind, r.Outcome, r.Reason)
				}
			}

			for _, step := range []string{"get: /a", "post: /a, json: {}", "put: /a",
				"delete: /a"} {
				s, err := compileSteps(t, articleWithSteps("      - { "+step+" }\n"), url)
				if err != nil {
					t.Fatal(err)
				}
				check(step, s.Send(t.Context(), newDelivery("<article/>")))
			}

			single, err := steps.New(steps.Config{URL: url, Method: http.MethodPut,
				Timeout: 10 * time.Second, Now: time.Now})
			if err != nil {
				t.Fatal(err)
			}

			check("a single request", single.Send(t.Context(), newDelivery("<article/>")))
		})
	}
}

// A hint needs a similar name: tls has one letter of cms.
func TestSuggestName(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"header": "; did you mean headers?", "cms": "",
		"kye": "; did you mean key?", "x": ""} {
		if got := steps.SuggestName(given, []string{"headers", "tls", "key"}); got != want {
			t.Errorf("%s: got %q, want %q", given, got, want)
		}
	}
}
