package host

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"weir/internal/loopback"
)

// Mode is the way in which a host passes HTTP requests on to the handler. The real host has one of
// two modes, according to its age.
type Mode string

// Forwarding is the mode of hosts older than June 2025, which ignore enableProxyingHttpRequest in
// host.json. Proxying is the mode of newer hosts: they proxy if host.json sets
// enableProxyingHttpRequest. Without this setting, newer hosts do the same as older hosts.
const (
	Forwarding Mode = "forwarding"
	Proxying   Mode = "proxying"
)

// Set implements flag.Value.
func (m *Mode) Set(text string) error {
	if Mode(text) != Forwarding && Mode(text) != Proxying {
		return fmt.Errorf("want %s or %s", Forwarding, Proxying)
	}
	*m = Mode(text)
	return nil
}

func (m *Mode) String() string { return string(*m) }

// maxBody is the largest body of a request, in bytes.
const maxBody = 104857600

// maxHeader is the value of MaxHeaderBytes in http.Server. net/http adds 4 KB to this limit. The
// sum, 32 KB, is about the limit of Kestrel, the real host's HTTP server.
const maxHeader = 32<<10 - 4096

// httpFront takes the HTTP requests of clients, and passes them to the instances.
type httpFront struct{ *Host }

func (h httpFront) newServer() *http.Server {
	return &http.Server{
		Handler: h.newHandler(), ReadHeaderTimeout: time.Minute, MaxHeaderBytes: maxHeader,
		DisableGeneralOptionsHandler: true, // newHandler also answers OPTIONS *
	}
}

func (h httpFront) newHandler() http.Handler {
	admin := adminAPI(h).adminHandler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.cfg.Development && !loopback.IsName(r.Host) {
			http.Error(w, "This host of a developer's machine answers only to localhost and 127.0.0.1.",
				http.StatusMisdirectedRequest)
			return
		}

		sent, refusal := parseTarget(r.Method, r.RequestURI)
		if refusal != 0 {
			w.WriteHeader(refusal)
			return
		}

		r.URL = &url.URL{Path: sent.path, RawQuery: sent.query}

		// a ServeMux for all paths would redirect paths such as /a//b
		if strings.HasPrefix(sent.path, "/admin/") {
			admin.ServeHTTP(w, r)
			return
		}

		h.serveFunction(w, r, sent)
	})
}

// serveFunction serves a request with a function whose route and methods match the request. If
// several functions match, it chooses the first in the order of their names.
func (h httpFront) serveFunction(w http.ResponseWriter, r *http.Request, sent requestTarget) {
	f, params := h.matchFunction(r.Method, sent.path)
	switch {
	case f == nil && sent.path == "/":
		_, _ = io.WriteString(w, "Your Functions host stand-in is up and running.\n")
		return
	case f == nil:
		w.WriteHeader(http.StatusNotFound)
		return
	case !h.isAuthorized(f, r):
		w.WriteHeader(http.StatusUnauthorized)
		return
	case r.ContentLength > maxBody:
		// not 413: in the real host the invocation fails
		w.WriteHeader(http.StatusInternalServerError)
		return
	}

	i, leave := h.pickInstance(f)
	defer leave()

	switch {
	case i == nil:
		http.Error(w, "Function host is not running.", http.StatusServiceUnavailable)
	case f.isForwardable && h.app.isProxying && h.cfg.HTTP != Forwarding:
		caller{i}.proxyRequest(w, r, f, sent)
	case f.isForwardable && h.app.isForwarding:
		caller{i}.forwardRequest(w, r, f, sent)
	default:
		caller{i}.serveByPayload(w, r, f, params)
	}
}

func (h httpFront) matchFunction(method, path string) (*function, map[string]string) {
	for _, f := range h.app.functions {
		if !f.isHTTP() || f.isDisabled || !f.allowsMethod(method) {
			continue
		}
		if params, ok := f.route.matchPath(path); ok {
			return f, params
		}
	}

	return nil, nil
}

func (h httpFront) isAuthorized(f *function, r *http.Request) bool {
	level := strings.ToLower(f.trigger.AuthLevel)
	if !h.cfg.EnableAuth || level == "anonymous" {
		return true
	}

	given := givenKey(r)
	if equalKeys(given, h.cfg.MasterKey) {
		return true
	}

	return (level == "" || level == "function") &&
		(equalKeys(given, h.cfg.Key) || equalKeys(given, h.cfg.FunctionKeys[f.name]))
}

// givenKey returns the key that a client sent. A key in the header takes precedence over one in the
// query. The names of parameters are not case-sensitive, and the first of several keys counts.
func givenKey(r *http.Request) string {
	if key := r.Header.Get("x-functions-key"); key != "" {
		return key
	}

	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if name, value, _ := strings.Cut(part, "="); strings.EqualFold(decodeQuery(name), "code") {
			return decodeQuery(value)
		}
	}

	return ""
}

func equalKeys(given, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}

// addTraceparent adds a trace header that is marked as not sampled, if Config.Traceparent is set
// and the call has no trace header. The real host does so if Application Insights is connected.
func (h *Host) addTraceparent(header http.Header) {
	if !h.cfg.Traceparent || header.Get("Traceparent") != "" {
		return
	}
	var id [24]byte
	_, _ = rand.Read(id[:]) // never fails
	header.Set("Traceparent", fmt.Sprintf("00-%x-%x-00", id[:16], id[16:]))
}
