// Package functions_test checks the function.json files and host.json against the rules of the
// Functions host, and the routes against the OpenAPI document.
package functions_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/internal/openapi"
	"weir/internal/openapi/openapitest"
)

// trigger is the first binding of a function.json.
type trigger struct {
	Type      string   `json:"type"`
	AuthLevel string   `json:"authLevel"`
	Methods   []string `json:"methods"`
	Route     string   `json:"route"`
}

// The host tries functions in the order of their names, and chooses the first one whose route and
// methods match. A catch-all route begins with {*, and can match paths of other functions. So each
// catch-all route must come after all other routes with its methods.
func TestRoutes_CatchAllsComeLast(t *testing.T) {
	t.Parallel()
	taken := map[string]string{} // by method: the function that has the catch-all route
	for _, file := range listInOrder(t) {
		name := filepath.Dir(file)
		tr := readTrigger(t, file)
		for _, method := range tr.Methods {
			if by, shadowed := taken[method]; shadowed {
				t.Errorf("%s %s of %s comes after the catch-all route of %s; want it before that route", method,
					tr.Route, name, by)
			}

			if strings.HasPrefix(tr.Route, "{*") {
				taken[method] = name
			}
		}
	}

	if len(taken) != 3 {
		t.Errorf("got the catch-all routes %v, want 3", taken)
	}
}

// TestRoutes_AsDescribed checks the function that the host chooses for each operation of the API.
// This function must be the one whose key the OpenAPI document names.
func TestRoutes_AsDescribed(t *testing.T) {
	t.Parallel()
	document, err := openapitest.Read(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}

	for _, operation := range document.Operations() {
		method, path, _ := strings.Cut(operation, " ")
		described, keyless := document.Function(operation)

		// the parameter's name stands for a value
		path = strings.NewReplacer("{", "", "}", "").Replace(path)
		chosen, tr := chooseFunction(t, method, strings.TrimPrefix(path, "/api/"))
		if chosen != described || keyless != (tr.AuthLevel == "anonymous") {
			t.Errorf("%s goes to %q with authLevel %q; want %q, and a call without a key allowed: %t", operation,
				chosen, tr.AuthLevel, described,
				keyless)
		}
	}
}

// chooseFunction returns the first function whose route and methods fit a request.
func chooseFunction(t *testing.T, method, path string) (string, trigger) {
	t.Helper()
	for _, file := range listInOrder(t) {
		if tr := readTrigger(t, file); slices.Contains(tr.Methods, strings.ToLower(method)) &&
			routeTakes(tr.Route, path) {
			return filepath.Dir(file), tr
		}
	}

	return "", trigger{}
}

// parameter matches a route's parameter with the slash before it, such as /{name:regex(^a\z)?}. Its
// groups are:
//   - 1: the constraint, here "a", or empty if there is no constraint
//   - 2: "?" if the parameter is optional, and otherwise empty
var parameter = regexp.MustCompile(`/\{\*?[a-z]+(?::regex\(\^(.*?)\\z\))?(\??)\}`)

// routeTakes reports whether a route matches a path, by the rules of the host's router. The router
// ignores case, and a slash at the end of the path.
func routeTakes(route, path string) bool {
	pattern := parameter.ReplaceAllString(
		strings.NewReplacer("{{", "\x01", "}}", "\x02").Replace("/"+route), "(?:/(?:$1))$2")
	pattern = strings.NewReplacer("\x01", "{", "\x02", "}").Replace(pattern)
	return regexp.MustCompile("(?i)^" + pattern + "/?$").MatchString("/" + path)
}

// hostile has parameter values that mislead an old host: the host checks the key for one path, and
// forwards the request to another path.
var hostile = []string{".", "..", "../a", "a/..", "a/../b", "./a", "a/.", `a\b`, `..\a`, "a%2e",
	"%5c", "a b", "a?b", "a#b", "a\n", "a\t", "a//b", "dashboard/.."}

// The routes must refuse all hostile values. Otherwise a caller could reach a path for which the
// host did not check the key.
func TestRoutes_AreConstrained(t *testing.T) {
	t.Parallel()
	parameters := 0
	for _, file := range listInOrder(t) {
		route := "/" + readTrigger(t, file).Route
		for _, p := range parameter.FindAllStringSubmatch(route, -1) {
			parameters++
			if p[1] == "" {
				t.Errorf("%s: the parameter %s has no constraint, want regex(^…\\z)", file, p[0])
			}

			for _, hostile := range hostile {
				if routeTakes(p[0][1:], hostile) {
					t.Errorf("%s: the parameter %s takes %q; want this value refused", file,
						p[0], hostile)
				}
			}
		}

		if rest := parameter.ReplaceAllString(route, ""); strings.ContainsAny(rest, "{}") {
			t.Errorf("%s: the rest %s of the route has another parameter, want {name:regex(^…\\z)}",
				file, rest)
		}
	}

	if parameters != 9 {
		t.Errorf("parameters: got %d, want 9", parameters)
	}
}

func TestChooseFunction(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"GET schedules": "schedules", "GET schedules/": "schedules",
		"GET schedules/.night": "schedules",
		"DELETE schedules/...": "schedules",
		"POST schedules/a/run": "schedules", "POST schedules/a/pause": "schedules",
		"POST schedules/a/paused": "",
		"POST schedules/..":       "",
		"GET schedules/..":        "", "POST schedules/..\\pause": "",
		"GET messages/..\\dashboard": "", "GET messages/a\n": "", "GET messages/a": "status",
		"GET messages/a/body": "view",
		"GET Messages":        "view", "GET messages/": "view", "GET dashboard/": "view",
		"GET dashboard/assets/page.css": "view", "GET dashboard/../lanes": "",
		"POST ../sweep": "", "POST x\\..\\messages": "", "DELETE replays/7": "write",
		"POST messages": "receive",
		"POST validate": "validate", "POST Validate/": "validate", "POST validate/a": "",
		"GET validate": "",
		"HEAD health":  "health", "POST batches": "batches", "GET batches": "view",
		"GET batches/a":    "status",
		"GET openapi.yaml": "openapi", "GET openapi.json": "openapi", "GET openapi.xml": "",
		"DELETE batches/a": "write", "DELETE batches": "", "GET lanes/a": "view",
	} {
		method, target, _ := strings.Cut(path, " ")
		if got, _ := chooseFunction(t, method, target); got != want {
			t.Errorf("%q goes to %q, want %q", path, got, want)
		}
	}
}

// listInOrder returns the function.json files in the order in which the host tries the functions.
func listInOrder(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*/function.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("functions: %v %v, want more than 0 files and no error", files, err)
	}

	slices.SortFunc(files, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	return files
}

func readTrigger(t *testing.T, file string) trigger {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	var f struct {
		Bindings []trigger `json:"bindings"`
	}
	if err := json.Unmarshal(data, &f); err != nil || len(f.Bindings) == 0 {
		t.Fatalf("%s: got %v, want more than 0 Bindings and no error", file, err)
	}

	return f.Bindings[0]
}

// TestHostFile checks three rules of host.json:
//   - Both flags of forwarding are set: old hosts read one flag, and new hosts the other one.
//     Without its flag, a host sends a JSON payload instead of the HTTP request.
//   - At the level Information, the host logs only Weir's lines, and two of the host's own
//     categories, which have few lines. All lines of the host would cost more money than the
//     storage account.
//   - Sampling drops no type of telemetry that shows failures.
func TestHostFile(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../host.json")
	if err != nil {
		t.Fatal(err)
	}

	var h struct {
		Logging struct {
			LogLevel            map[string]string
			ApplicationInsights struct {
				SamplingSettings struct{ ExcludedTypes string }
			}
		}
		CustomHandler struct{ EnableForwardingHTTPRequest, EnableProxyingHTTPRequest bool }
	}
	if err := json.Unmarshal(data, &h); err != nil {
		t.Fatal(err)
	}

	if c := h.CustomHandler; !c.EnableForwardingHTTPRequest || !c.EnableProxyingHTTPRequest {
		t.Errorf("got %+v, want both flags of forwarding set", c)
	}

	want := map[string]string{"default": "Warning", "Host.Function.Console": "Information",
		"Host.Startup": "Information", "Host.Aggregator": "Information"}
	if got := h.Logging.LogLevel; !maps.Equal(got, want) {
		t.Errorf("levels: got %v, want %v", got, want)
	}

	kept := strings.Split(h.Logging.ApplicationInsights.SamplingSettings.ExcludedTypes, ";")
	for _, kind := range []string{"Exception", "Request", "Trace"} {
		if !slices.Contains(kept, kind) {
			t.Errorf("sampling drops telemetry of the type %s; want this type excluded from sampling", kind)
		}
	}
}
