package door

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"weir/internal/httpio"
	"weir/internal/loopback"
	"weir/internal/weir"
)

// Config configures a Door. All fields are required, except Keys.
type Config struct {
	Keys          Keys // empty = requests need no key; see CheckAddress
	IsBehindProxy bool
	Page          string // path of the operator's page, which a person signs in to
	Now           func() time.Time
	Log           *slog.Logger
}

// Door guards all routes of a process.
type Door struct{ Config }

// New returns a Door.
func New(cfg Config) *Door { return &Door{cfg} }

// isOpen reports whether requests need no key.
func (d *Door) isOpen() bool { return len(d.Keys) == 0 }

// hostHeaders are headers that only a Functions host, or the platform before it, writes.
var hostHeaders = []string{
	httpio.InvocationHeader,
	"X-MS-CLIENT-PRINCIPAL",
	"X-MS-CLIENT-PRINCIPAL-ID",
	"X-MS-CLIENT-PRINCIPAL-NAME",
	"X-MS-CLIENT-PRINCIPAL-IDP",
}

// proxyHeaders are headers that only a proxy in front writes.
var proxyHeaders = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"}

// Wrap returns a handler for all requests of the process. It removes headers by which a caller
// could imitate a host or a proxy. If requests need no key, it refuses requests to other names than
// those of this machine: a page of another site can give its own name the address 127.0.0.1 (DNS
// rebinding).
func (d *Door) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range hostHeaders {
			r.Header.Del(name)
		}

		if !d.IsBehindProxy {
			for _, name := range proxyHeaders {
				r.Header.Del(name)
			}
		}

		if d.isOpen() && !loopback.IsName(r.Host) {
			httpio.WriteError(w, r, d.Log, &weir.Error{Kind: weir.Forbidden, Op: "door",
				Message: "without keys this server answers only to localhost and addresses such as 127.0.0.1"})
			return
		}

		next.ServeHTTP(w, r)
	})
}

// Guard returns a handler that passes a request on to the handler of a function if the request has
// a key of the function: in a header or a parameter, as under a Functions host, or in the cookie of
// the person who signed in. It adds the cookie's key to the request. A browser without a key that
// asks for a page gets the address of the sign-in.
func (d *Door) Guard(function string, next http.Handler) http.Handler {
	if d.isOpen() || !needsKey(function) {
		return next
	}

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := httpio.FunctionKey(r)
		if key == "" {
			if key = d.signedInKey(r); key != "" {
				r.Header.Set("X-Functions-Key", key)
			}
		}

		switch {
		case d.Keys.Open(function, key) || d.isPublic(r):
			next.ServeHTTP(w, r)
		case d.isPageRequest(r):
			http.Redirect(w, r, d.signInAddress(r), http.StatusSeeOther)
		default:
			httpio.WriteError(w, r, d.Log, &weir.Error{Kind: weir.Unauthenticated, Op: "door",
				Message: "this needs the key of the function " + function +
					", in the header x-functions-key"})
		}
	})
}

// Public has the functions that need no key, as under a Functions host.
var Public = []string{"health", "openapi"}

// needsKey reports whether a function needs a key.
func needsKey(function string) bool { return !slices.Contains(Public, function) }

// isPublic reports whether a request is for a file that has nothing of the system: style and script
// of the page, which the sign-in needs, too.
func (d *Door) isPublic(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, d.Page+"/assets/")
}

// isPageRequest reports whether a browser asks for a page.
func (d *Door) isPageRequest(r *http.Request) bool {
	isPage := r.URL.Path == d.Page || strings.HasPrefix(r.URL.Path, d.Page+"/")
	return isPage && r.Method == http.MethodGet &&
		strings.Contains(r.Header.Get("Accept"), "text/html")
}
