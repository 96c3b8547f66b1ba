package cms_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"weir/internal/steps"
)

// answerWith returns a client of a CMS. The parameter "answer" is the handler of the CMS's
// requests. The parameter "query" is the end of the CMS's address.
func answerWith(t *testing.T, query string, answer http.HandlerFunc) *steps.Sender {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	address := strings.Replace(server.URL, "http://", "http://editor:pa55-w0rd@", 1) +
		"/api/content/{key}" + query

	return newClient(t, address, func(c *steps.Config) {
		c.Headers = map[string]string{"Authorization": "Bearer t0ken-0f-the-cms",
			"X-Api-Key": "h3ader-key"}
	})
}

// The Location of a redirect often repeats the request's address, and the address can contain
// secrets.
func TestSender_RedirectsDoNotShowSecrets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ location, want string }{
		"ToHTTPS": {"https://cms.example%s",
			"301 Moved Permanently: redirected to https://cms.example, which is not followed"},
		"WithUserInfo": {"https://editor:pa55-w0rd@cms.example:8443%s",
			"redirected to https://cms.example:8443, which"},
		"RelativePath": {"/login?return=%s", "redirected to another path of the same host, which"},
		"NoScheme":     {"//cms.example%s", "redirected to //cms.example, which"},
		"Unreadable":   {"http://[%s", "failed to parse Location header"},
		"WithoutOne":   {"", "redirected, which is not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := answerWith(t, "?api_key=sEcReT-9f2c&v=1",
				func(w http.ResponseWriter, r *http.Request) {
					if c.location != "" {
						location := c.location
						if strings.Contains(location, "%s") {
							location = fmt.Sprintf(location, r.URL.RequestURI())
						}
						w.Header().Set("Location", location)
					}

					w.WriteHeader(http.StatusMovedPermanently)
				})

			r := client.Send(t.Context(), newDelivery())
			if !strings.Contains(r.Reason, c.want) || strings.Contains(r.Reason, "sEcReT") ||
				strings.Contains(r.Reason, "pa55") {
				t.Errorf("got %q, want it to have %q and no secret", r.Reason, c.want)
			}
		})
	}
}

// If the CMS's answer repeats the request, Weir keeps the answer without the secrets of the
// settings.
func TestSender_AnswersAreKeptWithoutSecrets(t *testing.T) {
	t.Parallel()
	client := answerWith(t, "?api_key=sEcReT+9f2c%26&pin=4711",
		func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			user, password, _ := r.BasicAuth()
			fmt.Fprintf(w, "no such item: %s, key %s, by %s:%s %s, %s; version 4711",
				r.URL.RequestURI(),
				r.URL.Query().Get("api_key"), user, password, r.Header.Get("Authorization"),
				r.Header.Get("X-Api-Key"))
		})

	r := client.Send(t.Context(), newDelivery())
	for _, text := range []string{r.Reason, r.Body} {
		for _, secret := range []string{"sEcReT", "9f2c", "pin=4711", "pa55", "t0ken", "h3ader"} {
			if strings.Contains(text, secret) {
				t.Errorf("got %q, want no %s", text, secret)
			}
		}

		if !strings.Contains(text, "no such item") || !strings.Contains(text, "api_key=…&pin=…") ||
			!strings.Contains(text, "version 4711") {
			t.Errorf("got %q, want the whole answer except the secrets", text)
		}
	}
}

// Weir must mask secrets before it cuts the reason to its maximal length. Otherwise a cut could
// leave a part of a secret unmasked.
func TestSender_SecretsAreMaskedBeforeTheTextIsCut(t *testing.T) {
	t.Parallel()
	const reasonLimit = 300
	for length := reasonLimit - 40; length < reasonLimit; length++ {
		client := answerWith(t, "?api_key=sEcReT-9f2c",
			func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, strings.Repeat("x", length)+"sEcReT-9f2c")
			})
		if r := client.Send(t.Context(), newDelivery()); strings.Contains(r.Reason, "sEc") {
			t.Fatalf("got %q, want no part of the secret", r.Reason)
		}
	}
}
