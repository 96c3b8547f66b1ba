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

// environment has the host's environment variables and the app settings. Handlers inherit all of
// them.
type environment struct {
	names  []string // in the order in which they were first set
	values map[string]string
}

func newEnviron(pairs []string) *environment {
	e := &environment{values: map[string]string{}}
	for _, pair := range pairs {
		if name, value, ok := strings.Cut(pair, "="); ok {
			e.setVar(name, value)
		}
	}
	return e
}

func (e *environment) setVar(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environment) getVar(name string) string { return e.values[name] }

func (e *environment) hasVar(name string) bool {
	_, ok := e.values[name]
	return ok
}

// childEnv returns the environment of a child process: the variables of e and of "more". For a name
// that is in both, it uses the value in "more".
func (e *environment) childEnv(more map[string]string) []string {
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

// expandSettings replaces each %NAME% by the value of the setting NAME, or by nothing if this
// setting is not set. It returns the first name without a setting as "missing".
func (e *environment) expandSettings(s string) (text, missing string) {
	text = settingPattern.ReplaceAllStringFunc(s, func(m string) string {
		name := strings.Trim(m, "%")
		if !e.hasVar(name) && missing == "" {
			missing = name
		}
		return e.getVar(name)
	})

	return text, missing
}

// addLocalSettings adds the settings under "Values" in local.settings.json. If an environment
// variable already has the name of a setting, addLocalSettings skips the setting and returns a
// warning.
func (e *environment) addLocalSettings(root string) (warnings []string, err error) {
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
		return []string{"local.settings.json cannot be read, so none of its values are used: " +
			err.Error()}, nil
	}

	if file.IsEncrypted == nil || *file.IsEncrypted {
		return nil, errors.New(
			"local.settings.json: the values count as encrypted and cannot be decrypted; set " +
				"\"IsEncrypted\": false")
	}

	for name, value := range file.Values {
		if e.hasVar(name) {
			warnings = append(warnings, fmt.Sprintf(
				"Skipping '%s' from local settings as it's already defined in current environment variables.", name))
			continue
		}
		e.setVar(name, value)
	}

	return warnings, nil
}
