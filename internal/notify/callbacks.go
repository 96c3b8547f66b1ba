package notify

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"weir/internal/weir"
)

// Callbacks restricts the callback addresses of messages. The zero value allows none.
type Callbacks struct {
	AllowedHosts []string          // a name, or *.name for all names below it; with its port if not the default one
	AllowPrivate bool              // allow private addresses, and http
	Secret       Secret            // signs for each host that has no secret in HostSecrets
	HostSecrets  map[string]Secret // secrets of those entries of AllowedHosts that have a secret of their own
}

// maxCallback is the longest address in bytes.
const maxCallback = 2048

// Check returns nil if Weir may send events to the callback address of a message. Otherwise it returns an
// Invalid error with the reason.
func (c Callbacks) Check(address string) error {
	refuse := func(format string, args ...any) error {
		reason := fmt.Sprintf(format, args...)
		return &weir.Error{Kind: weir.Invalid, Op: "callback", Message: "Weir-Callback: " + reason,
			Problems: []weir.Problem{{Path: "Weir-Callback", Rule: "callback", Message: reason}}}
	}
	if len(c.AllowedHosts) == 0 {
		return refuse("callbacks are off: callbacks.allowedHosts in weir.yaml is empty")
	}
	if len(address) > maxCallback {
		return refuse("the address is over %d characters", maxCallback)
	}
	u, err := parseAddress(address, c.AllowPrivate)
	if err != nil {
		return refuse("%s", err)
	}
	if c.findEntry(u) == "" {
		return refuse("the host %s is not among those allowed", u.Host)
	}
	return nil
}

// parseAddress parses an absolute https address to which events can be sent. It accepts http, too, if plain is set.
func parseAddress(text string, plain bool) (*url.URL, error) {
	for _, r := range text {
		if r <= ' ' || r > '~' {
			return nil, errors.New("the address must be of visible ASCII characters")
		}
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Opaque != "":
		return nil, errors.New("it must be an absolute address, https://…")
	case u.Scheme != "https" && !(plain && u.Scheme == "http"):
		return nil, errors.New("the address must begin with https://")
	case u.User != nil:
		return nil, errors.New("the address must not have a user name or a password")
	case u.Fragment != "" || strings.Contains(text, "#"):
		return nil, errors.New("the address must not have a fragment")
	}
	return u, nil
}

// hostPort returns an address's host in lower case, with its port.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// findEntry returns the entry of AllowedHosts that allows the address's host; "" = none. An entry without a port
// allows only the scheme's default port. If several entries allow the host, findEntry returns the entry with the
// longest name.
func (c Callbacks) findEntry(u *url.URL) (found string) {
	longest := 0
	for _, entry := range c.AllowedHosts {
		name, _ := splitHost(entry)
		if length := len(strings.TrimPrefix(name, "*")); length > longest && entryAllows(entry, u) {
			found, longest = entry, length
		}
	}
	return found
}

func entryAllows(entry string, u *url.URL) bool {
	name, port := splitHost(entry)
	if port == "" {
		_, port, _ = net.SplitHostPort(hostPort(&url.URL{Scheme: u.Scheme, Host: "x"}))
	}
	suffix, wild := strings.CutPrefix(strings.ToLower(name), "*")
	host, atPort, _ := net.SplitHostPort(hostPort(u))
	return atPort == port && (host == suffix && !wild ||
		wild && strings.HasSuffix(host, suffix) && len(host) > len(suffix))
}

// secretFor returns the secret that signs for an address. A receiver needs its secret to check signatures, so
// receivers with the same secret can forge each other's events.
func (c Callbacks) secretFor(address string) Secret {
	if u, err := url.Parse(address); err == nil {
		if own, has := c.HostSecrets[c.findEntry(u)]; has {
			return own
		}
	}
	return c.Secret
}

// splitHost splits an entry of AllowedHosts into name and port; port may be empty.
func splitHost(entry string) (name, port string) {
	if host, p, err := net.SplitHostPort(entry); err == nil {
		return host, p
	}
	return strings.Trim(entry, "[]"), ""
}

func (c Callbacks) findProblems() []error {
	var problems []error
	for _, entry := range c.AllowedHosts {
		name, _ := splitHost(entry)
		rest := strings.TrimPrefix(name, "*.")
		u, err := url.Parse("https://" + strings.Replace(entry, "*.", "", 1))
		if err != nil || u.Path != "" || u.RawQuery != "" || u.User != nil || u.Hostname() == "" ||
			strings.ContainsAny(rest, "*/ ") {
			problems = append(problems, fmt.Errorf("callbacks.allowedHosts: %q is not a host "+
				"such as hooks.example.com, *.example.org or hooks.example.com:8443", entry))
		}
	}
	return problems
}
