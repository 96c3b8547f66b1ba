package diagnosis

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"weir/internal/residence/hostwatch"
	"weir/internal/settings"
)

// planNames describes the hosting plans, by the value of WEBSITE_SKU. Some descriptions have advice
// for the operator.
var planNames = map[string]string{
	"FlexConsumption": "plan Flex Consumption: read how to deliver there in docs/hosting.md",
	"ElasticPremium":  "plan Premium",
	"Dynamic":         "plan Consumption, which is not supported on Linux: use Flex Consumption",
}

func describePlan(env func(string) string) string {
	sku := env("WEBSITE_SKU")
	if plan, known := planNames[sku]; known {
		return plan
	}

	switch {
	case sku != "":
		return "plan Dedicated (" + sku + "): Always On must be on, which cannot be seen from here"
	case env("WEBSITE_SITE_NAME") != "":
		return "plan unknown"
	}

	return "no plan of Azure's"
}

func (s *System) checkHost(env func(string) string) Finding {
	f := Finding{Name: "host", Detail: describePlan(env), Todo: "see docs/hosting.md"}
	if group := env("FUNCTIONS_TARGET_GROUP"); group != "" {
		f.Detail += ", group " + group
	}

	path := filepath.Join(env("FUNCTIONS_APP_ROOT_PATH"), "host.json")
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		f.Detail += ", no host.json here"
	case err != nil:
		f.Wrong = err
	default:
		f.Wrong = checkHostFile(text)
	}

	if env("WEBSITE_SITE_NAME") != "" && env("WEIR_PREFIX") == "" {
		f.Wrong = errors.Join(f.Wrong, settings.ErrNoPrefix)
	}

	if env("WEBSITE_SKU") == "FlexConsumption" && !s.Settings.DeliversByTicket() {
		f.Detail += ", every instance delivers: what outlasts a ticket moves to the group of process " +
			"(delivery.instances)"
	}

	return f
}

// checkHostFile returns an error if host.json lacks enableForwardingHttpRequest (for older hosts)
// or enableProxyingHttpRequest (for newer hosts). A host that does not find its flag sends each
// HTTP request as JSON, which Weir does not read.
func checkHostFile(text []byte) error {
	var h struct {
		CustomHandler map[string]any `json:"customHandler"`
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return fmt.Errorf("host.json: %w", err)
	}

	var missing []string
	for _, flag := range []string{"enableForwardingHttpRequest", "enableProxyingHttpRequest"} {
		if h.CustomHandler[flag] != true {
			missing = append(missing, flag)
		}
	}

	if missing != nil {
		return fmt.Errorf("host.json: customHandler.%s must be true: older hosts need the one, newer ones the other",
			strings.Join(missing, " and "))
	}

	return nil
}

// checkHostWatch checks whether this process can read the sockets of the host, which has the
// process id pid. If this process cannot read them, it does not notice when the host stops.
func checkHostWatch(proc fs.FS, pid int) Finding {
	f := Finding{Name: "stop",
		Detail: "a stop of the host is noticed, so that lanes are handed over"}
	if err := hostwatch.Check(proc, pid); err != nil {
		f.Detail = "a stop of the host cannot be noticed here (" + firstLine(err).Error() + "): " +
			"the lanes of an instance that is stopped stand until the leases have run out"
	}
	return f
}
