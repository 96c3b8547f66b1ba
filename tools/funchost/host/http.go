package host

import (
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// maxBody is the largest body of a request.
const maxBody = 104857600

// contentHeaders are lost when a request is forwarded: .NET refuses them among request headers.
var contentHeaders = []string{"Allow", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location", "Content-Md5", "Content-Range", "Expires", "Last-Modified"}

// hopHeaders belong to one connection.
var hopHeaders = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect"}

func (h *Host) routes() http.Handler {
	admin := h.admin()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/admin/") { // a mux here would redirect unclean paths; the host does not
			admin.ServeHTTP(w, r)
			return
		}
		h.serveFunction(w, r)
	})
}

// serveFunction finds the first function, by name, whose route and methods match.
func (h *Host) serveFunction(w http.ResponseWriter, r *http.Request) {
	f, params := h.match(r)
	switch {
	case f == nil && r.URL.Path == "/":
		_, _ = io.WriteString(w, "Your Functions host stand-in is up and running.\n")
		return
	case f == nil:
		w.WriteHeader(http.StatusNotFound)
		return
	case !h.authorized(f, r):
		w.WriteHeader(http.StatusUnauthorized)
		return
	case r.ContentLength > maxBody:
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	i := h.next()
	if i == nil {
		http.Error(w, "Function host is not running.", http.StatusServiceUnavailable)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if h.app.forwarding && f.pure {
		i.forward(w, r, f)
		return
	}
	i.serve(w, r, f, params)
}

func (h *Host) match(r *http.Request) (*function, map[string]string) {
	for _, f := range h.app.functions {
		if !f.isHTTP() || f.disabled || !f.allows(r.Method) {
			continue
		}
		if params, ok := f.route.match(r.URL.EscapedPath()); ok {
			return f, params
		}
	}
	return nil, nil
}

func (h *Host) authorized(f *function, r *http.Request) bool {
	level := strings.ToLower(f.trigger.AuthLevel)
	if !h.cfg.EnableAuth || level == "anonymous" {
		return true
	}
	given := givenKey(r)
	if same(given, h.cfg.MasterKey) {
		return true
	}
	return (level == "" || level == "function") && same(given, h.cfg.Key)
}

// givenKey reads the key a client sent; the header comes before the query.
func givenKey(r *http.Request) string {
	if key := r.Header.Get("x-functions-key"); key != "" {
		return key
	}
	return r.URL.Query().Get("code")
}

func same(given, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}

// forward sends the request on as it is, or nearly, and relays the whole answer.
func (i *instance) forward(w http.ResponseWriter, r *http.Request, f *function) {
	id, start := newGUID(), i.host.console.now()
	i.host.console.detail("Executing 'Functions.%s' (Id=%s, instance %d)", f.name, id, i.number)
	var answer *http.Response
	var body []byte
	out, err := i.forwarded(r, id)
	if err == nil {
		err = i.within(func(ctx context.Context, client *http.Client) error {
			var err error
			if answer, err = client.Do(out.WithContext(ctx)); err != nil {
				return err
			}
			defer func() { _ = answer.Body.Close() }()
			body, err = io.ReadAll(answer.Body)
			return err
		})
	}
	i.report(f.name, id, start, err)
	if err != nil {
		w.WriteHeader(failureStatus(err))
		return
	}
	relay(w, answer, body)
}

func failureStatus(err error) int {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusInternalServerError
}

var errChunked = errors.New("a chunked request body cannot be forwarded")

// forwarded builds the request for the handler.
func (i *instance) forwarded(r *http.Request, id string) (*http.Request, error) {
	if r.ContentLength < 0 {
		return nil, errChunked
	}
	body, err := io.ReadAll(r.Body) // the real host reads it all first, too
	if err != nil {
		return nil, err
	}
	target := url.URL{Path: r.URL.Path, RawQuery: joinQuery(r.URL.RawQuery)}
	out, err := http.NewRequestWithContext(context.Background(), r.Method, i.url(target.String()), nil)
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		// Without GetBody net/http cannot send it twice by itself.
		out.Body, out.ContentLength = io.NopCloser(strings.NewReader(string(body))), int64(len(body))
	}
	out.Host = r.Host
	out.Header = forwardedHeader(r.Header, len(body) > 0, id)
	return out, nil
}

func forwardedHeader(in http.Header, hasBody bool, id string) http.Header {
	out := in.Clone()
	for _, name := range slices.Concat(contentHeaders, hopHeaders, []string{"Content-Length"}) {
		out.Del(name)
	}
	if !hasBody {
		out.Del("Content-Type")
	}
	out.Add(headerID, id) // after what a client may have sent under this name
	out.Add(headerVersion, hostVersion)
	out.Set("User-Agent", strings.TrimSpace(in.Get("User-Agent")+" "+userAgent))
	return out
}

// joinQuery rebuilds a query as the host does: values of one name, whatever its case, are joined
// by commas, and each has a value.
func joinQuery(raw string) string {
	var names []string
	values := map[string][]string{}
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		name, value = unescapeQuery(name), unescapeQuery(value)
		at := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
		if at < 0 {
			names = append(names, name)
		} else {
			name = names[at]
		}
		values[name] = append(values[name], value)
	}
	var out []string
	for _, name := range names {
		out = append(out, escapeQuery(name)+"="+escapeQuery(strings.Join(values[name], ",")))
	}
	return strings.Join(out, "&")
}

func unescapeQuery(s string) string {
	if u, err := url.QueryUnescape(s); err == nil {
		return u
	}
	return s
}

func escapeQuery(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

func relay(w http.ResponseWriter, answer *http.Response, body []byte) {
	for name, values := range answer.Header {
		if !slices.Contains(hopHeaders, name) && name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(body) // the client may be gone
}
