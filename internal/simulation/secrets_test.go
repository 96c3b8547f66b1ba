package simulation_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"weir/internal/signin"
	"weir/internal/storage"
)

// tokenWord stands in the token of each process, in a form that no escape changes.
const tokenWord = "t0kenOf"

// newSignIn returns a keeper that signs the requests of the process in when the first one is sent.
// The CMS repeats the token in its refusals.
func (p *process) newSignIn() *signin.Keeper {
	if p.w.chains.endsSessions {
		return signin.NewKeeper(&sessions{p: p}, p.now)
	}
	return signin.NewKeeper(signin.Fixed(newToken(p.name)), p.now)
}

func newToken(name string) signin.Credential {
	return signin.Credential{Headers: http.Header{"Authorization": {"Bearer " + tokenWord + "/" + name + "+word=="}}}
}

// sessions is a source of credentials: each sign-in of a process begins another session.
type sessions struct {
	p     *process
	count atomic.Int32
}

func (s *sessions) Fetch(context.Context) (signin.Credential, error) {
	return newToken(fmt.Sprint(s.p.name, "-", s.count.Add(1))), nil
}

// repeatCredential returns the body of a refusal that repeats the credential of the request as PHP,
// a browser and other programs would write it.
func repeatCredential(r *http.Request, seq int64) string {
	credential := r.Header.Get("Authorization")
	switch seq % 4 {
	case 1:
		credential = strings.ReplaceAll(credential, "/", `\/`)
	case 2:
		credential = url.QueryEscape(credential)
	case 3:
		credential = strings.ReplaceAll(strings.ReplaceAll(credential, "/", "&#x2F;"),
			"+", `\u002b`)
	}

	return fmt.Sprintf("%q is refused: %s", r.Method, credential)
}

// checkSecrets reports a stored row that has the token of a process. The caller holds c.mu.
func (c *checker) checkSecrets(p *process, ops []storage.Op) {
	for _, op := range ops {
		for column, value := range op.Values {
			if text := fmt.Sprintf("%s", value); strings.Contains(strings.ToLower(text),
				strings.ToLower(tokenWord)) {
				c.addViolation("secret", "%s writes a token into the column %s of %s: %s", p.name,
					column, op.Key, text)
			}
		}
	}
}
