package diagnosis

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"weir/internal/settings"
)

func TestCheckHost(t *testing.T) {
	t.Parallel()
	const both = `{"customHandler":{"enableForwardingHttpRequest":true,"enableProxyingHttpRequest":true}}`
	for name, c := range map[string]struct {
		hostFile string
		env      []string
		detail   string
		wrong    string
	}{
		"NoHost": {"", nil, "no plan of Azure's, no host.json here", ""},
		"Local":  {both, nil, "no plan of Azure's", ""},
		"Flex": {both, []string{"WEBSITE_SKU", "FlexConsumption", "FUNCTIONS_TARGET_GROUP", "http"},
			"group http, every instance delivers", ""},
		"Dedicated": {both, []string{"WEBSITE_SKU", "PremiumV3"}, "Always On must be on", ""},
		"NoPrefix": {both, []string{"WEBSITE_SITE_NAME", "weir"}, "",
			"set the app setting WEIR_PREFIX"},
		"OldFile": {`{"customHandler":{"enableForwardingHttpRequest":true}}`, nil, "",
			"customHandler.enableProxyingHttpRequest must be true"},
		"NoFlags": {`{}`, nil, "",
			"enableForwardingHttpRequest and enableProxyingHttpRequest must be true"},
		"NotJSON": {`{`, nil, "", "host.json:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnvironment(t, minimal, c.env...)
			if c.hostFile != "" {
				if err := os.WriteFile(filepath.Join(e("FUNCTIONS_APP_ROOT_PATH"), "host.json"),
					[]byte(c.hostFile), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			s, _ := settings.Load(e)
			f := (&System{Settings: &s}).checkHost(e)
			if c.wrong == "" && (f.Wrong != nil || !strings.Contains(f.Detail, c.detail)) {
				t.Errorf("got the detail %q and the problem %v; want %q and none", f.Detail,
					f.Wrong, c.detail)
			}

			if c.wrong != "" && (f.Wrong == nil || !strings.Contains(f.Wrong.Error(), c.wrong)) {
				t.Errorf("got the problem %v, want one with %q", f.Wrong, c.wrong)
			}
		})
	}
}

func TestCheckHostWatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f    Finding
		want string
	}{
		"Here":    {checkHostWatch(os.DirFS("/proc"), os.Getpid()), "of the host is noticed"},
		"Without": {checkHostWatch(fstest.MapFS{}, 1), "cannot be noticed here"},
	} {
		if c.f.Wrong != nil || !strings.Contains(c.f.Detail, c.want) {
			t.Errorf("%s: got the detail %q (%v), want %q and no problem", name, c.f.Detail,
				c.f.Wrong, c.want)
		}
	}
}
