package app

import (
	"os"
	"strings"
	"testing"
)

// The check needs no variable that weir.yaml names, whatever the type of its setting.
func TestDiagnoseOffline(t *testing.T) {
	t.Parallel()
	const good = `
lanes: ${MY_LANES}
maxBody: ${MY_SIZE}
retention: ${MY_RETENTION}
delivery: { url: "${MY_CMS}", timeout: "${MY_TIMEOUT}", headers: { X-Key: "${MY_KEY}" } }
contracts:
  - { name: news, root: news, key: ./@id }
`
	for name, c := range map[string]struct{ text, want string }{
		"Good": {good, ""},
		"Setting": {strings.Replace(good, "delivery:", "leases: 1s\ndelivery:", 1),
			`unknown field "leases"`},
		"Value":            {strings.Replace(good, "delivery:", "lease: 1s\ndelivery:", 1), "lease is 1s"},
		"Contract":         {strings.Replace(good, "./@id", "\"./[\"", 1), "brackets"},
		"FieldOfAVariable": {strings.Replace(good, "url:", "urls:", 1), `unknown field "urls"`},
		"OpenGroup":        {strings.Replace(good, "} }", "}", 1), "must be specified"},
		"Header": {strings.Replace(good, "X-Key", "Weir-Key", 1),
			"Weir-Key comes from the message"},
	} {
		env := newEnvironment(t, c.text)
		var wrong []string
		for _, f := range DiagnoseOffline(env) {
			if f.Wrong != nil {
				wrong = append(wrong, f.Wrong.Error())
			}
		}

		if got := strings.Join(wrong, "\n"); c.want == "" && got != "" ||
			!strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}

	missing := func(name string) string {
		return map[string]string{"WEIR_CONFIG": "/nowhere/my.yaml"}[name]
	}
	if f := DiagnoseOffline(missing); len(f) != 1 || f[0].Wrong == nil ||
		!strings.Contains(f[0].Wrong.Error(), os.ErrNotExist.Error()) &&
			!strings.Contains(f[0].Wrong.Error(), "no such") {
		t.Errorf("a missing file: got %+v, want that it cannot be read", f)
	}
}
