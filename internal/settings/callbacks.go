package settings

import (
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"weir/internal/notify"
	"weir/internal/weir"
)

// CallbackHost is an entry of callbacks.allowedHosts: a host, or { host, secret }.
type CallbackHost struct {
	Host   string `yaml:"host"`
	Secret Secret `yaml:"secret"` // empty = callbacks.secret
}

// UnmarshalYAML implements yaml.NodeUnmarshaler.
func (h *CallbackHost) UnmarshalYAML(n ast.Node) error {
	switch n.Type() {
	case ast.MappingType, ast.MappingValueType:
		type plain CallbackHost
		return yaml.NodeToValue(n, (*plain)(h), yaml.Strict())
	}
	return yaml.NodeToValue(n, &h.Host)
}

// CallbackRules returns the rules for callbacks, and the problems of the secrets in the setting
// "callbacks". Without that setting, no callback is allowed.
func (s *Settings) CallbackRules() (notify.Callbacks, []error) {
	c := notify.Callbacks{AllowPrivate: s.Callbacks.AllowPrivate,
		HostSecrets: map[string]notify.Secret{}}
	var problems []error
	needsShared := s.Callbacks.Secret != ""
	for i, entry := range s.Callbacks.AllowedHosts {
		c.AllowedHosts = append(c.AllowedHosts, entry.Host)
		if entry.Secret == "" {
			needsShared = true
			continue
		}

		own, err := notify.ParseSecret(string(entry.Secret))
		if err != nil {
			problems = append(problems, weir.NewSettingProblem(
				fmt.Sprintf("callbacks.allowedHosts[%d].secret", i), "%v", err))
		}

		c.HostSecrets[entry.Host] = own
	}

	if needsShared {
		var err error
		if c.Secret, err = notify.ParseSecret(string(s.Callbacks.Secret)); err != nil {
			problems = append(problems, weir.NewSettingProblem("callbacks.secret", "%v", err))
		}
	}

	return c, problems
}

// warnCallbacks returns a warning for each host that has the same secret as an earlier host.
func (s *Settings) warnCallbacks() (warnings []string) {
	bySecret := map[Secret]string{}
	for _, entry := range s.Callbacks.AllowedHosts {
		key := entry.Secret
		if key == "" {
			key = s.Callbacks.Secret
		}

		if other, isShared := bySecret[key]; isShared {
			warnings = append(warnings,
				fmt.Sprintf("callbacks: %s and %s have one secret, so each of them can forge "+
					"events to the other; give each a secret of its own", other, entry.Host))
		}

		bySecret[key] = entry.Host
	}

	return warnings
}
