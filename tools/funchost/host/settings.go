package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// environ is the host's environment, inherited by its handlers: app settings are nothing else.
type environ struct {
	names  []string // in order of appearance
	values map[string]string
}

func newEnviron(pairs []string) *environ {
	e := &environ{values: map[string]string{}}
	for _, pair := range pairs {
		if name, value, ok := strings.Cut(pair, "="); ok {
			e.set(name, value)
		}
	}
	return e
}

func (e *environ) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environ) get(name string) string { return e.values[name] }

func (e *environ) has(name string) bool {
	_, ok := e.values[name]
	return ok
}

// pairs gives the environment for a child, with more added.
func (e *environ) pairs(more map[string]string) []string {
	var out []string
	for _, name := range e.names {
		if _, ok := more[name]; !ok {
			out = append(out, name+"="+e.values[name])
		}
	}
	for name, value := range more {
		out = append(out, name+"="+value)
	}
	return out
}

var settingPattern = regexp.MustCompile(`%[^%]+%`)

// expand replaces each %NAME%; it reports the first name that is not set.
func (e *environ) expand(s string) (text, missing string) {
	text = settingPattern.ReplaceAllStringFunc(s, func(m string) string {
		name := strings.Trim(m, "%")
		if !e.has(name) && missing == "" {
			missing = name
		}
		return e.get(name)
	})
	return text, missing
}

// localSettings adds the Values of local.settings.json. What the environment has already
// wins. Warnings are for the person at the terminal.
func (e *environ) localSettings(root string) (warnings []string, err error) {
	raw, err := os.ReadFile(filepath.Join(root, "local.settings.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	var file struct {
		IsEncrypted *bool
		Values      map[string]string
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return []string{"local.settings.json cannot be read, so none of its values are used: " + err.Error()}, nil
	}
	if file.IsEncrypted == nil || *file.IsEncrypted {
		return nil, errors.New("local.settings.json: the values count as encrypted and cannot be decrypted; set \"IsEncrypted\": false")
	}
	for name, value := range file.Values {
		if e.has(name) {
			warnings = append(warnings, fmt.Sprintf("Skipping '%s' from local settings as it's already defined in current environment variables.", name))
			continue
		}
		e.set(name, value)
	}
	return warnings, nil
}
