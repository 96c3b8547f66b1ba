// Package deploy_test checks that the templates, scripts and pipelines of a deployment fit the
// program.
package deploy_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"weir/internal/audit"
)

// quotedMessages finds the log messages that the queries in a template look for.
var quotedMessages = regexp.MustCompile(`line\.msg == "([^"]+)"`)

func TestAzureAlerts_LookForLoggedLines(t *testing.T) {
	t.Parallel()
	text := string(readFile(t, "../infra/modules/alerts.bicep"))
	found := quotedMessages.FindAllStringSubmatch(text, -1)
	if len(found) < 5 {
		t.Errorf("got %d log lines in the rules, want at least 5", len(found))
	}

	source := readGoSource(t)
	for _, m := range found {
		if !strings.Contains(source, `"`+m[1]+`"`) {
			t.Errorf("no line %q is logged", m[1])
		}
	}

	for _, m := range regexp.MustCompile(`name (?:== "|in \()([^)\n]+)`).FindAllStringSubmatch(text,
		-1) {
		for _, word := range regexp.MustCompile(`[a-z]+`).FindAllString(strings.ReplaceAll(m[1],
			"Count", ""), -1) {
			if _, err := os.Stat(filepath.Join("../functions", word, "function.json")); err != nil {
				t.Errorf("a rule counts calls of %q, and there is no such function", word)
			}
		}
	}
}

func readGoSource(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, root := range []string{"../functions", "../handler", "../internal"} {
		err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") &&
				!strings.HasSuffix(path, "_test.go") {
				all.Write(readFile(t, path))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	return all.String()
}

// TestAzure_NoKeyInSettings checks that each template has the settings for a sign-in to storage
// without a key. See internal/app/settings_storage.go.
func TestAzure_NoKeyInSettings(t *testing.T) {
	t.Parallel()
	settings := []string{
		"AzureWebJobsStorage__accountName", "AzureWebJobsStorage__credential",
		"AzureWebJobsStorage__clientId",
		"WEIR_PREFIX",
	}

	templates := []string{"../infra/modules/flex.bicep", "../infra/modules/plan.bicep",
		"container-apps/main.bicep"}
	for _, path := range templates {
		text := string(readFile(t, path))
		for _, want := range settings {
			if !strings.Contains(text, "'"+want+"'") {
				t.Errorf("%s does not set %s", path, want)
			}
		}

		for _, forbidden := range []string{"'AzureWebJobsStorage'", "listKeys", "AccountKey",
			"listAccountSas"} {
			if strings.Contains(text, forbidden) {
				t.Errorf("%s has %s, want it without", path, forbidden)
			}
		}
	}

	if !strings.Contains(string(readFile(t, "../infra/modules/storage.bicep")),
		"allowSharedKeyAccess: false") {
		t.Error("storage.bicep lacks allowSharedKeyAccess: false, want no access by the account's key")
	}
}

// TestAzure_ResourcesOfStorage checks that storage.bicep and files.bicep create each resource that
// account.go names.
func TestAzure_ResourcesOfStorage(t *testing.T) {
	t.Parallel()
	code := string(readFile(t, "../internal/storage/azure/account.go"))
	template := string(readFile(t, "../infra/modules/storage.bicep")) +
		string(readFile(t, "../infra/modules/files.bicep"))
	found := regexp.MustCompile(`c\.Prefix ?\+ ?"([^"]+)"`).FindAllStringSubmatch(code, -1)
	if len(found) < 5 {
		t.Fatalf("got %d names in account.go, want at least 5", len(found))
	}

	for _, m := range found {
		if !strings.Contains(template, "'${prefix}"+m[1]+"'") {
			t.Errorf("storage.bicep and files.bicep do not make <prefix>%s", m[1])
		}
	}
}

// A tag of an action can be moved to other code; a commit cannot.
func TestWorkflows_PinActionsByCommit(t *testing.T) {
	t.Parallel()
	pinned := regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	for _, name := range []string{"ci.yml", "deploy.yml"} {
		text := string(readFile(t, "../.github/workflows/"+name))
		found := regexp.MustCompile(`(?m)uses: (.*)$`).FindAllStringSubmatch(text, -1)
		if len(found) < 5 {
			t.Errorf("%s: got %d actions, want at least 5", name, len(found))
		}

		for _, m := range found {
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s: got the action %q, want it with the commit, and the version as a comment", name, m[1])
			}
		}
	}
}

func TestKEDA(t *testing.T) {
	t.Parallel()
	var kinds []string
	env, queue := map[string]string{}, ""
	for _, part := range strings.Split(string(readFile(t, "keda/weir.yaml")), "\n---\n") {
		var object struct {
			Kind string
			Spec struct {
				Template struct {
					Spec struct {
						SecurityContext struct {
							RunAsNonRoot bool `yaml:"runAsNonRoot"`
							RunAsUser    int  `yaml:"runAsUser"`
						} `yaml:"securityContext"`
						Containers []struct {
							Env             []struct{ Name, Value string }
							SecurityContext struct {
								AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
								ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
								Capabilities             struct{ Drop []string }
							} `yaml:"securityContext"`
						}
					}
				}
				MinReplicaCount int `yaml:"minReplicaCount"`
				Triggers        []struct {
					Type     string
					Metadata map[string]string
				}
			}
		}
		if err := yaml.Unmarshal([]byte(part), &object); err != nil {
			t.Fatal(err)
		}

		kinds = append(kinds, object.Kind)
		pod := object.Spec.Template.Spec
		for _, c := range pod.Containers {
			own := c.SecurityContext
			user := fmt.Sprintf("USER %d:", pod.SecurityContext.RunAsUser)
			if !pod.SecurityContext.RunAsNonRoot || own.AllowPrivilegeEscalation == nil ||
				*own.AllowPrivilegeEscalation ||
				!own.ReadOnlyRootFilesystem ||
				!slices.Equal(own.Capabilities.Drop, []string{"ALL"}) ||
				!strings.Contains(string(readFile(t, "../Dockerfile")), user) {
				t.Errorf("got %+v and %+v, want the user of the Dockerfile, no privileges and a root that cannot be written",
					pod.SecurityContext, own)
			}

			for _, e := range c.Env {
				env[e.Name] = e.Value
			}
		}

		for _, trigger := range object.Spec.Triggers {
			if object.Spec.MinReplicaCount < 1 {
				t.Errorf("got %d replicas at least, want 1 for the timer of sweep",
					object.Spec.MinReplicaCount)
			}
			queue += trigger.Metadata["queueName"]
		}
	}

	if want := env["WEIR_PREFIX"] + "-tickets"; queue != want || env["WEIR_PREFIX"] == "" {
		t.Errorf("scaled by queue %q, want %q", queue, want)
	}

	for _, want := range []string{"ServiceAccount", "Deployment", "Service",
		"TriggerAuthentication", "ScaledObject"} {
		if !slices.Contains(kinds, want) {
			t.Errorf("no %s among %v", want, kinds)
		}
	}
}

// A program cannot use a sign-in page, so a program's address requires only a function key. An
// operator's address also requires a sign-in.
func TestSignIn_LeavesTheAddressesOfProgramsOpen(t *testing.T) {
	t.Parallel()
	template := string(readFile(t, "../infra/main.bicep"))
	_, list, _ := strings.Cut(template, "param signInOpenPaths array = [")
	list, _, _ = strings.Cut(list, "]")
	open := regexp.MustCompile(`'([^']+)'`).FindAllStringSubmatch(list, -1)
	var paths []string
	for _, m := range open {
		paths = append(paths, m[1])
	}

	if !slices.Equal(paths, audit.DefaultOpenPaths) {
		t.Errorf("the template's paths are %q, and the audit log assumes %q", paths,
			audit.DefaultOpenPaths)
	}

	isOpen := func(path string) bool {
		return slices.ContainsFunc(open, func(m []string) bool {
			folder, isFolder := strings.CutSuffix(m[1], "*")
			return m[1] == path || isFolder && strings.HasPrefix(path, folder)
		})
	}

	for _, name := range []string{"receive", "batches", "validate", "status", "cancel", "move",
		"schedules", "health", "metrics", "openapi"} {
		var function struct {
			Bindings []struct{ Route string }
		}
		if err := yaml.Unmarshal(readFile(t, "../functions/"+name+"/function.json"), &function); err != nil {
			t.Fatal(err)
		}

		for _, path := range pathsOfRoute("/api/" + function.Bindings[0].Route) {
			if !isOpen(path) {
				t.Errorf("programs with a key of %s cannot reach %s", name, path)
			}
		}
	}

	for _, path := range []string{"/api/dashboard", "/api/dashboard/messages", "/api/pause",
		"/api/resume",
		"/api/lanes", "/api/audit", "/api/versions/forget", "/api/replays", "/api/cancellations",
		"/sweep"} {
		if isOpen(path) {
			t.Errorf("%s can be reached without sign-in", path)
		}
	}
}

// namesInRoute matches a route parameter that accepts only listed names, such as
// {kind:regex(^(messages|batches)\z)}.
var namesInRoute = regexp.MustCompile(`\{\w+:regex\(\^\(([a-z|.\[\]]+)\)\\z\)\}`)

// pathsOfRoute returns one path for each name that the first parameter accepts (see namesInRoute).
// At a parameter of another kind, it cuts the path and appends x.
func pathsOfRoute(route string) (paths []string) {
	parameter := namesInRoute.FindStringSubmatch(route)
	if parameter == nil || strings.Index(route, "{") != strings.Index(route, parameter[0]) {
		path, _, hasParameter := strings.Cut(route, "{")
		if hasParameter {
			path += "x"
		}
		return []string{path}
	}

	for _, name := range strings.Split(parameter[1], "|") {
		paths = append(paths, pathsOfRoute(strings.Replace(route, parameter[0],
			strings.ReplaceAll(name, "[.]", "."), 1))...)
	}

	return paths
}

// fakeDeployment is the server that smoke.sh checks. It has the status of each answer, by method
// and path.
type fakeDeployment map[string]int

// good is a deployment that works.
var good = fakeDeployment{
	"GET /api/health": 200, "GET /api/openapi.yaml": 200, "POST /api/messages": 401,
	"GET /api/metrics": 200,
}

func (d fakeDeployment) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status := d[r.Method+" "+r.URL.Path]
	if r.URL.Path == "/api/metrics" && r.Header.Get("x-functions-key") != "the key" {
		status = http.StatusUnauthorized
	}

	w.WriteHeader(status)
	if status == http.StatusOK {
		fmt.Fprint(w, `weir_build_info{version="v1"} 1`)
	}
}

func TestSmoke(t *testing.T) {
	t.Parallel()
	with := func(path string, status int) fakeDeployment {
		changed := maps.Clone(good)
		changed[path] = status
		return changed
	}
	for name, c := range map[string]struct {
		app  fakeDeployment
		key  string
		want string // in the output
		ok   bool
	}{
		"works":      {good, "", "a post without a key is refused", true},
		"with a key": {good, "the key", `weir_build_info{version="v1"}`, true},
		"unhealthy": {with("GET /api/health", 503), "",
			"/api/health answered 503, 2 times", false},
		"open": {with("POST /api/messages", 202), "", "the address is open", false},
		"hidden": {with("GET /api/openapi.yaml", 404), "",
			"/api/openapi.yaml answers 404", true},
		"other app": {with("GET /api/openapi.yaml", 500), "",
			"/api/openapi.yaml answered 500", false},
		"another key": {good, "wrong", "/api/metrics answered 401", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.app)
			t.Cleanup(server.Close)
			cmd := exec.Command("sh", "smoke.sh")
			cmd.Env = append(os.Environ(), "WEIR_URL="+server.URL, "WEIR_CODE="+c.key,
				"WEIR_SMOKE_TRIES=2", "WEIR_SMOKE_PAUSE=0", "no_proxy=127.0.0.1")
			out, err := cmd.CombinedOutput()
			if (err == nil) != c.ok || !strings.Contains(string(out), c.want) {
				t.Errorf("got %v\n%s\nwant success %v and %q", err, out, c.ok, c.want)
			}
		})
	}
}

// fakeAz is a script that only prints its own command line.
const fakeAz = "#!/bin/sh\necho \"az $*\"\n"

func TestPublish_ByPlan(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "az"), []byte(fakeAz), 0o755); err != nil {
		t.Fatal(err)
	}

	server := httptest.NewServer(good)
	t.Cleanup(server.Close)

	for plan, want := range map[string][]string{
		"flex":      {"az functionapp deployment source config-zip -g group -n app --src azure_test.go"},
		"dedicated": {"az functionapp deployment source config-zip"},
		"premium": {
			"az storage blob upload --auth-mode login", "-n weir.zip", "az functionapp restart",
			"syncfunctiontriggers",
		},
		"y1": {"WEIR_PLAN is y1"},
	} {
		t.Run(plan, func(t *testing.T) {
			t.Parallel()

			// the package can be any file
			cmd := exec.Command("sh", "./publish.sh", "azure_test.go")
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "WEIR_PLAN="+plan,
				"WEIR_APP=app",
				"AZURE_RESOURCE_GROUP=group", "WEIR_STORAGE=st",
				"WEIR_PACKAGE_CONTAINER=app-package",
				"WEIR_URL="+server.URL, "WEIR_CODE=", "no_proxy=127.0.0.1")

			out, err := cmd.CombinedOutput()
			isPlan := plan != "y1"
			if (err == nil) != isPlan || isPlan && !strings.Contains(string(out), "answers 200") {
				t.Errorf("publish for %s = %v, want success: %t, and then \"answers 200\"\n%s",
					plan, err, isPlan, out)
			}

			for _, w := range want {
				if !strings.Contains(string(out), w) {
					t.Errorf("got\n%s\nwant %q", out, w)
				}
			}
		})
	}
}

// programCalls finds calls of make targets and of scripts.
var programCalls = regexp.MustCompile(`make ([a-z]+)\b|((?:deploy|tools/[a-z]+)/[a-z-]+\.sh)`)

// TestPipelines_CallExistingTargets checks the make targets and scripts that the pipelines and
// azure.yaml call: each of these must exist.
func TestPipelines_CallExistingTargets(t *testing.T) {
	t.Parallel()
	makefile := string(readFile(t, "../Makefile"))
	for _, path := range []string{"../.github/workflows/ci.yml", "../.github/workflows/deploy.yml",
		"azure-pipelines.yml", "../azure.yaml"} {
		text := readFile(t, path)
		var document map[string]any
		if err := yaml.Unmarshal(text, &document); err != nil {
			t.Errorf("parse %s: %v, want YAML", path, err)
		}

		calls := programCalls.FindAllStringSubmatch(string(text), -1)
		found := 0
		for _, call := range calls {
			switch target, script := call[1], call[2]; {
			case script != "":
				info, err := os.Stat(filepath.Join("..", script))
				if err != nil || info.Mode()&0o111 == 0 {
					t.Errorf("%s calls %s, which is no program: %v", path, script, err)
				}
				found++

			case target != "the": // "make the resources" is the name of a step, not a call
				if !strings.Contains(makefile, "\n"+target+":") {
					t.Errorf("%s calls make %s, and there is no such target", path, target)
				}
				found++
			}
		}

		if found < 3 {
			t.Errorf("%s calls %d of our programs, want at least 3", path, found)
		}
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
