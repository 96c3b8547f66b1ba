package settings

import (
	"strings"

	"weir/internal/door"
)

// keyVariablePrefix begins the names of the variables with the hashes of keys, such as
// WEIR_KEY_RECEIVE.
const keyVariablePrefix = "WEIR_KEY_"

// TLSFiles names the files of a certificate, in PEM.
type TLSFiles struct {
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
}

// IsSet reports whether both files have names.
func (f TLSFiles) IsSet() bool { return f.Certificate != "" && f.Key != "" }

// readKeys takes the hashes of keys from the environment. A variable has one or two hashes,
// separated by a space or a comma; it replaces the hashes of the function in weir.yaml.
func (s *Settings) readKeys(env func(string) string) {
	for _, name := range append([]string{door.All}, door.Functions...) {
		hashes := strings.FieldsFunc(
			env(keyVariablePrefix+strings.ToUpper(name)),
			func(r rune) bool {
				return r == ' ' || r == ','
			},
		)
		if len(hashes) == 0 {
			continue
		}

		if s.Keys == nil {
			s.Keys = map[string][]string{}
		}

		s.Keys[name] = hashes
	}
}

// checkDoor checks the settings of weir serve.
func (s *Settings) checkDoor(c *checker) {
	_, problems := door.ParseKeys(s.Keys)
	c.add(problems...)
	c.must((s.TLS.Certificate == "") == (s.TLS.Key == ""), "tls",
		"needs both files: certificate and key")
	c.must(s.Data == "" || s.Intake.Files == nil, "intake.files",
		"needs a storage account: other systems cannot put files into a folder of Weir; "+
			"post them, such as by weir send, or run weir serve --storage azure")
}
