package diagnosis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"weir/internal/settings"
)

// CheckCMS opens a connection to the CMS, and signs in. It sends no message.
func (s *System) CheckCMS(ctx context.Context) Finding {
	wrong, file := s.Problems.CMS, s.Settings.FileName
	f := Finding{Name: "cms", Wrong: wrong,
		Todo: todoFor(wrong, file, "set delivery.url in "+file+", or the variable that it names")}
	if s.Transport == nil {
		if wrong == nil {
			f.Wrong = errors.New("no address")
		}
		return f
	}

	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	through, target, err := resolveProxy(s.Settings.Delivery.URL)
	if err == nil {
		err = testConnection(ctx, s.Settings, through, target)
	}

	if err != nil {
		f.Wrong = firstLine(err)
		f.Todo = "see whether delivery.url is right, the CMS runs, and this machine may reach it"
		return f
	}

	f.Detail = "accepts connections at " + through.Host
	if s.Keeper != nil {
		if err := s.Keeper.Check(ctx); err != nil {
			f.Wrong, f.Todo = firstLine(err),
				"see whether delivery.signIn in weir.yaml has the right values"
			return f
		}
	}

	if s.Settings.Delivery.SignIn.AsksServer() {
		f.Detail += ", and the sign-in succeeds"
	}

	if s.Keeper != nil && s.Keeper.Doubt() != "" {
		f.Wrong, f.Todo = errors.New(s.Keeper.Doubt()), "correct delivery.signIn.for in weir.yaml"
	}

	return f
}

// todoFor returns the advice for a problem: to correct the setting of the problem. If it has no
// setting, or there are problems of several, todoFor returns the general advice.
func todoFor(wrong error, file, general string) string {
	var names []string
	for _, p := range settings.ListProblems(wrong) {
		if p.Path != "" {
			names = append(names, nameSetting(p.Path))
		}
	}

	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) != 1 {
		return general
	}

	return fmt.Sprintf("correct %s in %s, or the variable that it names", names[0], file)
}

// nameSetting returns the beginning of a path that an operator looks for in weir.yaml, such as
// delivery.signIn.oauth2 or contracts[0].steps.
func nameSetting(path string) string {
	parts := strings.Split(path, ".")
	depth := 2
	switch {
	case parts[0] == "lookups":
		depth = 1
	case len(parts) > 1 && (parts[1] == "signIn" || parts[1] == "tls"):
		depth = 3
	}

	named := parts[:min(depth, len(parts))]
	if last := len(named) - 1; last > 0 {
		named[last], _, _ = strings.Cut(named[last], "[") // without the place in a list
	}

	return strings.Join(named, ".")
}

// resolveProxy parses an address. The result "target" is the parsed address. The result "through"
// is the address to connect to: the proxy that the environment names for the target, or the target
// itself if there is no proxy.
func resolveProxy(address string) (through, target *url.URL, err error) {
	// Placeholders such as {key} stand only in the path and the query, which the connection does
	// not need.
	address, _, _ = strings.Cut(address, "{")
	if target, err = url.Parse(address); err != nil {
		return nil, nil, err
	}

	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: target})
	if err != nil || proxy != nil {
		return proxy, target, err
	}

	return target, target, nil
}

// testConnection opens a connection to the address "through". For an https target without a proxy
// it also checks the certificate of the CMS, with the authorities of delivery.tls.
func testConnection(ctx context.Context, s *settings.Settings, through, target *url.URL) error {
	port := through.Port()
	if port == "" {
		port = map[string]string{"https": "443", "socks5": "1080", "socks5h": "1080"}[through.Scheme]
	}

	if port == "" {
		port = "80"
	}

	address := net.JoinHostPort(through.Hostname(), port)
	var dialer interface {
		DialContext(ctx context.Context, network, address string) (net.Conn, error)
	} = &net.Dialer{}

	if through == target && target.Scheme == "https" {
		config, err := s.Delivery.TLS.NewConfig()
		if err != nil {
			return err
		}
		dialer = &tls.Dialer{Config: config}
	}

	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}

	return conn.Close()
}
