package repository_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The map "may" lists, for each package, exactly the packages of Weir that it imports. These
// packages are not in the map: app, the packages in the folder functions, and the packages that
// consist of tests (schema, simulation). The tools are a separate module, which the program does
// not require. Each package can import the guard of goroutines.
var may = map[string][]string{
	"weir/internal/weir":     {},
	"weir/internal/panics":   {"weir/internal/clock"},
	"weir/internal/contract": {"weir/internal/clock", "weir/internal/weir"},
	"weir/internal/storage":  {},
	"weir/internal/storage/azure": {"weir/internal/storage", "weir/internal/storage/denial",
		"weir/internal/storage/timelimit"},
	"weir/internal/storage/memory": {"weir/internal/storage", "weir/internal/storage/limits"},
	"weir/internal/storage/embedded": {"weir/internal/clock", "weir/internal/storage",
		"weir/internal/storage/limits",
		"weir/internal/storage/memory", "weir/internal/storage/timelimit"},
	"weir/internal/storage/folder": {"weir/internal/storage", "weir/internal/storage/embedded",
		"weir/internal/storage/timelimit"},
	"weir/internal/storage/limits":      {"weir/internal/storage"},
	"weir/internal/storage/storagetest": {"weir/internal/storage"},
	"weir/internal/storage/timelimit":   {"weir/internal/storage"},
	"weir/internal/storage/denial":      {"weir/internal/storage"},
	"weir/internal/lease": {"weir/internal/clock",
		"weir/internal/retry", "weir/internal/storage"},
	"weir/internal/fold":      {},
	"weir/internal/lane/rows": {"weir/internal/clock", "weir/internal/storage"},
	"weir/internal/lane/epochs": {"weir/internal/fold", "weir/internal/lane/rows",
		"weir/internal/storage"},
	"weir/internal/lane": {"weir/internal/clock", "weir/internal/fold", "weir/internal/lane/epochs",
		"weir/internal/lane/rows", "weir/internal/lane/outbox", "weir/internal/weir",
		"weir/internal/storage"},
	"weir/internal/wake":   {"weir/internal/weir"},
	"weir/internal/await":  {"weir/internal/lane", "weir/internal/weir"},
	"weir/internal/filing": {"weir/internal/fold", "weir/internal/lane", "weir/internal/weir"},
	"weir/internal/rabbitmq": {"weir/internal/unpack", "weir/internal/clock",
		"weir/internal/filing", "weir/internal/lane", "weir/internal/retry", "weir/internal/weir"},
	"weir/internal/ticket":   {"weir/internal/clock"},
	"weir/internal/upstream": {"weir/internal/storage", "weir/internal/weir"},
	"weir/internal/drain": {"weir/internal/clock", "weir/internal/weir", "weir/internal/lane",
		"weir/internal/lease", "weir/internal/limiter",
		"weir/internal/residence", "weir/internal/storage"},
	"weir/internal/relane": {"weir/internal/clock", "weir/internal/fold", "weir/internal/lane",
		"weir/internal/lane/epochs",
		"weir/internal/lease", "weir/internal/lane/epochend", "weir/internal/lane/jobrow",
		"weir/internal/retry", "weir/internal/storage"},
	"weir/internal/lane/transfer": {"weir/internal/clock", "weir/internal/lane",
		"weir/internal/lane/epochs",
		"weir/internal/lane/rows", "weir/internal/lease", "weir/internal/lane/epochend",
		"weir/internal/retry",
		"weir/internal/storage"},
	"weir/internal/lane/epochend": {"weir/internal/lane", "weir/internal/lane/rows",
		"weir/internal/weir", "weir/internal/storage"},
	"weir/internal/job": {"weir/internal/clock", "weir/internal/lease", "weir/internal/storage"},
	"weir/internal/replay": {"weir/internal/clock", "weir/internal/weir", "weir/internal/wire",
		"weir/internal/job",
		"weir/internal/lane", "weir/internal/lane/lists", "weir/internal/lane/jobrow",
		"weir/internal/storage", "weir/internal/upkeep"},
	"weir/internal/batch": {"weir/internal/contract", "weir/internal/filing", "weir/internal/job",
		"weir/internal/lane", "weir/internal/lane/epochs", "weir/internal/retry",
		"weir/internal/storage",
		"weir/internal/storage/listing", "weir/internal/weir", "weir/internal/wire"},
	"weir/internal/inbox": {"weir/internal/unpack", "weir/internal/batch", "weir/internal/filing",
		"weir/internal/lane", "weir/internal/lease", "weir/internal/retry", "weir/internal/storage",
		"weir/internal/storage/listing", "weir/internal/weir", "weir/internal/wire"},
	"weir/internal/lane/jobrow": {"weir/internal/lane", "weir/internal/lane/rows",
		"weir/internal/weir", "weir/internal/storage"},
	"weir/internal/verify": {"weir/internal/weir", "weir/internal/lane", "weir/internal/lane/lists",
		"weir/internal/storage"},
	"weir/internal/wire": {"weir/internal/weir"},
	"weir/internal/poll": {"weir/internal/clock", "weir/internal/weir", "weir/internal/lane",
		"weir/internal/drain"},
	"weir/internal/conceal": {},
	"weir/internal/cms": {"weir/internal/conceal", "weir/internal/contract",
		"weir/internal/signin", "weir/internal/weir"},
	"weir/internal/signin": {"weir/internal/clock", "weir/internal/conceal",
		"weir/internal/weir"},
	"weir/internal/limiter": {"weir/internal/clock", "weir/internal/storage"},
	"weir/internal/steps": {"weir/internal/clock", "weir/internal/cms", "weir/internal/conceal",
		"weir/internal/contract", "weir/internal/signin",
		"weir/internal/weir"},
	"weir/internal/redact": {"weir/internal/conceal", "weir/internal/contract",
		"weir/internal/weir"},
	"weir/internal/trial": {"weir/internal/cms", "weir/internal/conceal", "weir/internal/weir"},
	"weir/internal/telemetry": {"weir/internal/weir", "weir/internal/drain",
		"weir/internal/httpio"},
	"weir/internal/recur": {"weir/internal/clock", "weir/internal/weir", "weir/internal/lane",
		"weir/internal/storage", "weir/internal/storage/listing", "weir/internal/wake"},
	"weir/internal/overview": {"weir/internal/clock", "weir/internal/weir", "weir/internal/lane",
		"weir/internal/lane/epochs",
		"weir/internal/lane/lists", "weir/internal/storage", "weir/internal/wire"},
	"weir/internal/query": {"weir/internal/export", "weir/internal/httpio",
		"weir/internal/overview", "weir/internal/weir"},
	"weir/internal/difference": {"weir/internal/contract", "weir/internal/weir"},
	"weir/internal/lane/lists": {"weir/internal/weir", "weir/internal/lane",
		"weir/internal/lane/rows", "weir/internal/storage"},
	"weir/internal/notify": {"weir/internal/clock", "weir/internal/conceal", "weir/internal/weir",
		"weir/internal/lane",
		"weir/internal/lane/epochs", "weir/internal/lease", "weir/internal/lane/outbox",
		"weir/internal/retry", "weir/internal/storage"},
	"weir/internal/bulk": {"weir/internal/lane", "weir/internal/lane/lists",
		"weir/internal/weir"},
	"weir/internal/lane/outbox": {"weir/internal/lane/rows", "weir/internal/weir",
		"weir/internal/storage"},
	"weir/internal/audit": {"weir/internal/weir", "weir/internal/storage", "weir/internal/httpio",
		"weir/internal/lane"},
	"weir/internal/export":  {"weir/internal/httpio"},
	"weir/internal/invoke":  {},
	"weir/internal/openapi": {},
	"weir/internal/remote": {"weir/internal/retry", "weir/internal/upstream", "weir/internal/weir",
		"weir/internal/wire"},
	"weir/internal/retry":               {"weir/internal/clock"},
	"weir/internal/unpack":              {"weir/internal/weir"},
	"weir/internal/upkeep":              {"weir/internal/storage", "weir/internal/storage/listing"},
	"weir/internal/sweeper":             {"weir/internal/lane"},
	"weir/internal/openapi/openapitest": {},
	"weir/internal/httpio":              {"weir/internal/unpack", "weir/internal/weir"},
	"weir/internal/calendar":            {"weir/internal/clock"},
	"weir/internal/clock":               {},
	"weir/internal/residence":           {"weir/internal/residence/hostwatch"},
	"weir/internal/residence/hostwatch": {},
	"weir/internal/residence/stay": {"weir/internal/drain", "weir/internal/lane",
		"weir/internal/ticket"},
	"weir/internal/inflight": {"weir/internal/weir", "weir/internal/httpio"},
	"weir/internal/history": {"weir/internal/clock", "weir/internal/weir", "weir/internal/drain",
		"weir/internal/storage", "weir/internal/upkeep", "weir/internal/wire"},
	"weir/internal/dashboard": {"weir/internal/weir", "weir/internal/httpio", "weir/internal/trial",
		"weir/internal/wire"},
	"weir/internal/door": {"weir/internal/httpio", "weir/internal/loopback",
		"weir/internal/weir"},
	"weir/internal/trigger": {"weir/internal/clock", "weir/internal/invoke",
		"weir/internal/storage"},
	"weir/internal/settings": {"weir/internal/calendar", "weir/internal/conceal",
		"weir/internal/contract", "weir/internal/door", "weir/internal/drain", "weir/internal/fold",
		"weir/internal/inbox", "weir/internal/lane/epochs", "weir/internal/lease",
		"weir/internal/notify", "weir/internal/poll", "weir/internal/rabbitmq",
		"weir/internal/recur", "weir/internal/signin", "weir/internal/steps",
		"weir/internal/storage/azure", "weir/internal/upstream", "weir/internal/weir"},
	"weir/internal/diagnosis": {"weir/internal/calendar", "weir/internal/cms",
		"weir/internal/contract", "weir/internal/door", "weir/internal/lane",
		"weir/internal/lane/epochs", "weir/internal/lane/lists", "weir/internal/recur",
		"weir/internal/redact", "weir/internal/residence/hostwatch", "weir/internal/settings",
		"weir/internal/signin", "weir/internal/steps", "weir/internal/storage",
		"weir/internal/storage/azure", "weir/internal/storage/embedded",
		"weir/internal/storage/timelimit", "weir/internal/trial", "weir/internal/weir", "weir/internal/conceal"},
	"weir/internal/cli": {"weir/internal/app", "weir/internal/clock", "weir/internal/contract",
		"weir/internal/diagnosis",
		"weir/internal/door",
		"weir/internal/fold", "weir/internal/lane", "weir/internal/lane/epochs",
		"weir/internal/poll",
		"weir/internal/relane",
		"weir/internal/remote", "weir/internal/settings",
		"weir/internal/storage",
		"weir/internal/trial", "weir/internal/upstream", "weir/internal/verify",
		"weir/internal/weir",
		"weir/internal/wire"},
	"weir/handler": {"weir/internal/cli"},
	// Helpers for tests and tools.
	"weir/internal/dashboard/dashboardtest": {"weir/internal/contract", "weir/internal/dashboard",
		"weir/internal/trial", "weir/internal/weir", "weir/internal/wire"},
	"weir/internal/testkit/lanetest": {"weir/internal/lane", "weir/internal/storage/memory",
		"weir/internal/storage/storagetest", "weir/internal/weir"},
	"weir/internal/democms":          {"weir/internal/contract"},
	"weir/internal/loopback":         {},
	"weir/internal/testkit/azurite":  {},
	"weir/internal/testkit/linear":   {},
	"weir/internal/testkit/settings": {},
	"weir/internal/testkit/ziptest":  {},
}

// guard is the package with the guards of goroutines.
const guard = "weir/internal/panics"

// storedRows is the package with the keys and columns of the rows of a lane. Only the package
// lanes, and the packages below it, import it: a row that two rooms write would have two meanings.
const (
	lanes      = "weir/internal/lane"
	storedRows = lanes + "/rows"
)

// wiring is the package that assembles the program. It can import each package except the commands
// (internal/cli, handler). Only internal/cli imports wiring.
const wiring = "weir/internal/app"

// settingsReaders are the packages that know the settings of the process. All others get values from
// the wiring, so that a setting can change its place in weir.yaml without them.
var settingsReaders = []string{wiring, "weir/internal/diagnosis", "weir/internal/cli"}

// adapters are packages that the packages in the folder functions must not import. A package in
// this folder declares an interface instead, and wiring supplies the adapter.
var adapters = []string{"weir/internal/storage/azure", "weir/internal/storage/embedded",
	"weir/internal/storage/folder", "weir/internal/storage/memory", "weir/internal/cms",
	"weir/internal/lease", "weir/internal/rabbitmq", "weir/internal/steps", "weir/internal/signin"}

func TestImports(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "weir/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}

	listed := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		listed++

		for _, imported := range fields[1:] {
			if reason := whyForbidden(fields[0], imported); reason != "" {
				t.Errorf("%s imports %s: %s", fields[0], imported, reason)
			}
		}

		for _, allowed := range may[fields[0]] {
			if !slices.Contains(fields[1:], allowed) {
				t.Errorf("%s does not import %s: remove it from may", fields[0], allowed)
			}
		}
	}

	if listed < len(may) {
		t.Errorf("go list returned %d packages, want %d at least", listed, len(may))
	}
}

// whyForbidden returns the reason why the package pkg must not import the package that the
// parameter "imported" names. If the import is allowed, whyForbidden returns "".
func whyForbidden(pkg, imported string) string {
	isFunction := strings.HasPrefix(pkg, "weir/functions/")
	if strings.Contains(imported, "azure-sdk-for-go") && pkg != "weir/internal/storage/azure" {
		return "only internal/storage/azure speaks to the SDK"
	}
	if !strings.HasPrefix(imported, "weir/") || imported == guard && pkg != "weir/internal/clock" {
		return ""
	}

	allowed, listed := may[pkg]
	switch {
	case imported == storedRows && pkg != lanes && !strings.HasPrefix(pkg, lanes+"/"):
		return "only internal/lane and the packages below it know stored rows"
	case imported == "weir/handler" || imported == "weir/internal/cli" && pkg != "weir/handler":
		return "the commands are on top: only the binary imports them"
	case imported == wiring && pkg != "weir/internal/cli":
		return "only the commands start the wiring"
	case imported == "weir/internal/settings" && !slices.Contains(settingsReaders, pkg):
		return "only the wiring, the diagnosis and the commands know the settings"
	case strings.HasPrefix(imported, "weir/tools/"):
		return "tools are not part of the program"
	case strings.HasPrefix(imported, "weir/internal/testkit/"):
		return "a helper of tests is not part of the program"
	case strings.HasPrefix(imported, "weir/functions/") && pkg != wiring:
		return "functions are for the wiring, and do not know each other"
	case isFunction && slices.Contains(adapters, imported):
		return "a function declares what it needs, and gets an adapter from the wiring"
	case listed && !slices.Contains(allowed, imported):
		return "may does not list this import"
	case !listed && pkg != wiring && strings.HasPrefix(pkg, "weir/internal/"):
		return "this is a new package: add its imports to may"
	}

	return ""
}
