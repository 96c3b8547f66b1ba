package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// plans are the hosting plans by WEBSITE_SKU, each with what cannot be seen from inside.
var plans = map[string]string{
	"FlexConsumption": "plan Flex Consumption: read how to deliver there in docs/hosting.md",
	"ElasticPremium":  "plan Premium",
	"Dynamic":         "plan Consumption, which is not supported on Linux: use Flex Consumption",
}

// describePlan returns the hosting plan, by the variables that the platform sets.
func describePlan(env func(string) string) string {
	sku := env("WEBSITE_SKU")
	if plan, known := plans[sku]; known {
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

// checkHost checks host.json and the variables of the platform.
func (p *Program) checkHost(env func(string) string) finding {
	f := finding{name: "host", detail: describePlan(env), todo: "see docs/hosting.md"}
	if group := env("FUNCTIONS_TARGET_GROUP"); group != "" {
		f.detail += ", group " + group
	}
	path := filepath.Join(env("FUNCTIONS_APP_ROOT_PATH"), "host.json")
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		f.detail += ", no host.json here"
	case err != nil:
		f.wrong = err
	default:
		f.wrong = checkHostFile(text)
	}
	if env("WEBSITE_SITE_NAME") != "" && env("WEIR_PREFIX") == "" {
		f.wrong = errors.Join(f.wrong, errNoPrefix)
	}
	if env("WEBSITE_SKU") == "FlexConsumption" && !p.settings.leavesDelivery() {
		f.detail += ", every instance delivers: what outlasts a ticket moves to the group of process (delivery.instances)"
	}
	return f
}

// checkHostFile returns an error for each of the two flags that is not set. A host that knows
// neither sends HTTP requests as JSON, which Weir does not read.
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
		return fmt.Errorf("host.json: customHandler.%s must be true: older hosts need the one, newer ones the other", strings.Join(missing, " and "))
	}
	return nil
}
