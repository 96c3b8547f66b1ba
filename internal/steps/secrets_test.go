package steps_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/signin"
	"weir/internal/steps"
	"weir/internal/weir"
)

const saveStep = "      - { name: save, post: /items, json: { ref: \"{{ key }}\" } }\n"

// repeatCredential answers 400 with the credential of the request.
func repeatCredential(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusBadRequest)
	_, credential, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	fmt.Fprintf(w, `{"message":"the credential %s of %s has no scope"}`, credential,
		r.Header.Get("Cookie"))
}

// numberedTokens is a source whose credentials are token-of-cms-1, token-of-cms-2 and so on.
type numberedTokens struct{ count atomic.Int32 }

func (n *numberedTokens) Fetch(context.Context) (signin.Credential, error) {
	number := n.count.Add(1)
	return signin.Credential{Headers: http.Header{"Authorization": {fmt.Sprintf("Bearer token-of-cms-%d", number)}},
		Cookies: []*http.Cookie{{Name: "sid", Value: fmt.Sprintf("cookie-of-cms-%d", number)}}}, nil
}

// newSenders returns a sender of steps and a sender of single requests, with the sign-in of a
// keeper.
func newSenders(t *testing.T, handler http.HandlerFunc,
	keeper *signin.Keeper) map[string]weirSender {
	t.Helper()
	transport := func(next http.RoundTripper) http.RoundTripper {
		return signin.NewTransport(next, keeper)
	}
	chain := newSender(t, articleWithSteps(saveStep), handler, func(c *steps.Config) {
		c.Transport, c.Secrets = transport(c.Transport), keeper.Secrets
	})
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	plain := &http.Transport{}
	t.Cleanup(plain.CloseIdleConnections)
	single, err := steps.New(steps.Config{URL: server.URL, Method: "POST",
		Timeout: 10 * time.Second, Now: time.Now,
		Transport: transport(plain), Secrets: keeper.Secrets})
	if err != nil {
		t.Fatal(err)
	}

	return map[string]weirSender{"steps": chain, "single request": single}
}

type weirSender interface {
	Send(ctx context.Context, d weir.Delivery) weir.Result
}

// The first attempt of a process signs in during the attempt. So the token does not exist yet when
// the attempt begins.
func TestSender_HidesTheTokenOfTheFirstAttempt(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"steps", "single request"} {
		s := newSenders(t, repeatCredential, signin.NewKeeper(&numberedTokens{}, time.Now))[name]
		for attempt := range 2 {
			got := s.Send(t.Context(), newDelivery("<article id='1'/>"))
			if strings.Contains(got.Reason+got.Body, "-of-cms-") ||
				!strings.Contains(got.Reason, "has no scope") {
				t.Errorf("%s, attempt %d: got %q, want the reason of the CMS without the credential", name, attempt+1,
					got.Reason)
			}
		}
	}
}

// The CMS refuses the first token with 401, so the attempt signs in anew. The answer repeats both
// tokens.
func TestSender_HidesAReplacedToken(t *testing.T) {
	t.Parallel()
	handler := func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("Authorization"), "-1") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, "token-of-cms-1 has ended, token-of-cms-2 has no scope")
	}

	for _, name := range []string{"steps", "single request"} {
		s := newSenders(t, handler, signin.NewKeeper(&numberedTokens{}, time.Now))[name]
		got := s.Send(t.Context(), newDelivery("<article id='1'/>"))
		if strings.Contains(got.Reason+got.Body, "-of-cms-") ||
			!strings.Contains(got.Reason, "has no scope") {
			t.Errorf("%s: got %q, want the reason of the CMS without both tokens", name, got.Reason)
		}
	}
}

// net/http sends the user info of delivery.url as a Basic credential.
func TestSender_HidesTheUserInfoOfTheAddress(t *testing.T) {
	t.Parallel()
	for userInfo, credential := range map[string]string{
		"weir:passw0rd-of-cms": "weir:passw0rd-of-cms", "t0ken-of-cms": "t0ken-of-cms:"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"message":"refused: %s %s %s"}`, r.Header.Get("Authorization"),
				user, password)
		}))

		t.Cleanup(server.Close)
		address := strings.Replace(server.URL, "http://", "http://"+userInfo+"@", 1)
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		s, err := compileSteps(t, articleWithSteps(saveStep), address,
			func(c *steps.Config) { c.Transport = transport })
		if err != nil {
			t.Fatal(err)
		}

		got := s.Send(t.Context(), newDelivery("<article id='1'/>"))
		for _, secret := range []string{"of-cms",
			base64.StdEncoding.EncodeToString([]byte(credential))} {
			if strings.Contains(got.Reason+got.Body, secret) ||
				!strings.Contains(got.Reason, "refused: Basic") {
				t.Errorf("got %q and %q, want the CMS's text without %s", got.Reason,
					got.Body, secret)
			}
		}
	}
}

// A step takes a token from an answer, so neither the settings nor the sign-in know it. It is found
// by the name of the header, the parameter or the field.
func TestSender_HidesATokenOfAnEarlierStep(t *testing.T) {
	t.Parallel()
	const token = `"{{ session.json.token }}"`
	for name, save := range map[string]string{
		"header":    "post: /items, headers: { X-CSRF-Token: " + token + " }, json: {}",
		"parameter": "post: \"/items?csrf_token={{ session.json.token }}\", json: {}",
		"form":      "post: /items, form: { token: " + token + " }",
		"JSON":      "post: /items, json: { item: [ { csrfToken: " + token + " } ] }",
	} {
		list := "      - { name: session, get: /session, success: json?.token != nil }\n      - { name: save, " + save + " }\n"
		s := newSender(t, articleWithSteps(list),
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					fmt.Fprint(w, `{"token":"csrf/of-cms"}`)
					return
				}
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprint(w, `{"message":"the token csrf\/of-cms has ended"}`)
			}))

		got := s.Send(t.Context(), newDelivery("<article id='1'/>"))
		if strings.Contains(got.Reason+got.Body, "of-cms") ||
			!strings.Contains(got.Reason, "has ended") {
			t.Errorf("%s: got %q and %q, want the CMS's text without the token", name,
				got.Reason, got.Body)
		}
	}
}
