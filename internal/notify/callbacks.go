package notify

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"weir/internal/weir"
)

// Callbacks restricts the callback addresses of messages. The zero value allows no address.
type Callbacks struct {
	// a name, or *.name for its subdomains; with the port, if not the default
	AllowedHosts []string
	AllowPrivate bool              // also allow addresses of internal networks, and http
	Secret       Secret            // signs requests to each host without a secret in HostSecrets
	HostSecrets  map[string]Secret // own secrets of some hosts, by the host's entry in AllowedHosts
}

// maxCallback is the length of the longest allowed address, in bytes.
const maxCallback = 2048

// Check returns nil if Weir is allowed to send events to the callback address of a message.
// Otherwise it returns an error of kind Invalid with the reason.
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

// parseAddress parses an absolute https address to which events can be sent. If plain is set, it
// also accepts http.
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

// findEntry returns the entry of AllowedHosts that allows the host of u; "" = none. An entry
// without a port allows only the scheme's default port. If several entries allow the host,
// findEntry returns the entry with the longest name.
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

// secretFor returns the secret that signs requests to an address. A receiver needs its secret to
// check signatures, so receivers with the same secret can forge each other's events.
func (c Callbacks) secretFor(address string) Secret {
	if u, err := url.Parse(address); err == nil {
		if own, has := c.HostSecrets[c.findEntry(u)]; has {
			return own
		}
	}
	return c.Secret
}

// splitHost splits an entry of AllowedHosts into its name and its port. The port is empty if the
// entry has none.
func splitHost(entry string) (name, port string) {
	if host, p, err := net.SplitHostPort(entry); err == nil {
		return host, p
	}
	return strings.Trim(entry, "[]"), ""
}

func (c Callbacks) findProblems() (problems []*weir.SettingProblem) {
	for i, entry := range c.AllowedHosts {
		name, _ := splitHost(entry)
		rest := strings.TrimPrefix(name, "*.")
		u, err := url.Parse("https://" + strings.Replace(entry, "*.", "", 1))
		if err != nil || u.Path != "" || u.RawQuery != "" || u.User != nil || u.Hostname() == "" ||
			strings.ContainsAny(rest, "*/ ") {
			problems = append(problems, weir.NewSettingProblem(
				fmt.Sprintf("callbacks.allowedHosts[%d]", i), "%q is not a host such as "+
					"hooks.example.com, *.example.org or hooks.example.com:8443", entry))
		}
	}

	return problems
}
