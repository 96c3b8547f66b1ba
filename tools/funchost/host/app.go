package host

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// app is a function app: the folder that contains host.json, and the configuration read from it.
type app struct {
	root           string
	env            *environment
	command        handlerCommand
	isForwarding   bool
	isProxying     bool
	initTimeout    time.Duration
	timeout        time.Duration // time limit of an invocation; negative = none
	routePrefix    string
	queues         queueOptions
	functions      []*function // sorted by name
	indexingErrors []error     // one for each function that the host leaves out
	filter         logFilter
	// stderrIsErrors gives each line that the handler writes to stderr the level Error, unless the
	// line contains "warn".
	stderrIsErrors bool
}

// handlerCommand is the command that starts the handler.
type handlerCommand struct {
	path, dir string
	args      []string
}

type function struct {
	name          string
	trigger       functionBinding
	httpOutput    string // name of the HTTP output binding; empty = none
	route         routeTemplate
	isDisabled    bool
	isForwardable bool // its bindings are one HTTP trigger and one HTTP output
}

type functionBinding struct {
	Type, Name, Direction string
	AuthLevel             string
	Methods               []string
	Route                 *string
	QueueName, Connection string
	DataType              string
	Schedule              string
	UseMonitor            *bool
	RunOnStartup          bool
	// queue and pattern are QueueName and Schedule with each %setting% replaced by its value.
	// connection is the connection string in the app setting that Connection names.
	queue, connection, pattern string
}

func (f *function) hasTrigger(kind string) bool { return strings.EqualFold(f.trigger.Type, kind) }

func (f *function) isHTTP() bool { return f.hasTrigger("httpTrigger") }

func readApp(root string, env *environment) (*app, error) {
	h, err := readHostFile(root, env)
	if err != nil {
		return nil, err
	}

	a := &app{
		root:         root,
		env:          env,
		isForwarding: h.readBool(false, "customHandler", "enableForwardingHttpRequest"),
		isProxying:   h.readBool(false, "customHandler", "enableProxyingHttpRequest"),
		initTimeout:  h.readSpan(30*time.Second, "customHandler", "initializationTimeout"),
		timeout:      h.readSpan(30*time.Minute, "functionTimeout"),
		routePrefix:  strings.Trim(h.readString("api", "extensions", "http", "routePrefix"), "/"),
		queues:       h.readQueueOptions(env),
		filter:       h.readLogFilter(),

		stderrIsErrors: h.readBool(true, "customHandler", "description",
			"useStdErrorStreamForErrorsOnly"),
	}
	if a.timeout >= 0 && a.timeout < time.Second {
		h.addProblem([]string{"functionTimeout"}, "at least a second, or -1")
	}

	cmd, err := readCommand(h, root, env)
	if err := errors.Join(append(h.problems, err)...); err != nil {
		return nil, err
	}

	a.command = cmd

	return a, a.readFunctions()
}

func readCommand(h *hostFile, root string, env *environment) (handlerCommand, error) {
	at := func(name string) []string { return []string{"customHandler", "description", name} }
	path, _ := env.expandSettings(h.readString("", at("defaultExecutablePath")...))
	if path == "" {
		return handlerCommand{},
			errors.New("host.json: customHandler.description.defaultExecutablePath is missing")
	}

	if inRoot := filepath.Join(root, path); !filepath.IsAbs(path) {
		if _, err := os.Stat(inRoot); err == nil {
			path = inRoot // otherwise exec.Command searches PATH
		}
	}

	args := h.readStrings(at("arguments")...)
	if worker := h.readString("", at("defaultWorkerPath")...); worker != "" {
		args = append(args, worker)
	}

	args = append(args, h.readStrings(at("workerArguments")...)...)
	line, _ := env.expandSettings(strings.Join(args, " "))

	// As in the real host, an argument that contains a space becomes two arguments.
	return handlerCommand{path: path,
		dir:  filepath.Join(root, h.readString("", at("workingDirectory")...)),
		args: strings.Fields(line)}, nil
}

var functionName = regexp.MustCompile(`(?i)^[a-z][a-z0-9_-]{0,127}$`)

func (a *app) readFunctions() error {
	folders, err := os.ReadDir(a.root)
	if err != nil {
		return fmt.Errorf("read functions: %w", err)
	}

	var problems []error
	for _, folder := range folders {
		raw, err := os.ReadFile(filepath.Join(a.root, folder.Name(), "function.json"))
		if err != nil {
			continue // the real host also ignores a folder without function.json
		}

		f, err := a.readFunction(folder.Name(), raw)
		if unresolved := (*unresolvedError)(nil); errors.As(err, &unresolved) {
			a.indexingErrors = append(a.indexingErrors, &indexingError{folder.Name(), unresolved})
			continue
		}

		if err != nil {
			problems = append(problems, fmt.Errorf("function %q: %w", folder.Name(), err))
			continue
		}

		a.functions = append(a.functions, f)
	}

	switch {
	case len(a.functions) > 0 || len(problems) > 0:
	case len(a.indexingErrors) > 0:
		problems = a.indexingErrors
	default:
		problems = append(problems, fmt.Errorf(
			"no functions found in %s: function.json is looked for one level below the script root",
			a.root))
	}

	slices.SortFunc(a.functions, func(x, y *function) int {
		return cmp.Compare(strings.ToLower(x.name), strings.ToLower(y.name))
	})

	return errors.Join(append(problems, a.routeConflicts()...)...)
}

func (a *app) readFunction(name string, raw []byte) (*function, error) {
	if !functionName.MatchString(name) || strings.EqualFold(name, "host") {
		return nil, errors.New("not a name for a function")
	}

	var file struct {
		ScriptFile string
		Bindings   []functionBinding
		Retry      any
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, fmt.Errorf("function.json: %w", err)
	}

	if _, err := os.Stat(filepath.Join(a.root, name, file.ScriptFile)); err != nil {
		return nil, fmt.Errorf("scriptFile: %w", err)
	}

	if file.Retry != nil {
		return nil, errors.New("retry policies are not supported here")
	}

	f := &function{name: name, isDisabled: a.isDisabled(name)}
	if err := f.assignBindings(file.Bindings); err != nil {
		return nil, err
	}

	return f, a.completeTrigger(f)
}

func (f *function) assignBindings(bindings []functionBinding) error {
	inputs, outputs := 0, 0
	for _, b := range bindings {
		switch {
		case strings.HasSuffix(strings.ToLower(b.Type), "trigger"):
			f.trigger = b
			inputs++
		case strings.EqualFold(b.Type, "http") && strings.EqualFold(b.Direction, "out"):
			f.httpOutput = b.Name
			outputs++
		default:
			return fmt.Errorf("binding %q: type %q is not supported here", b.Name, b.Type)
		}
	}

	if inputs != 1 {
		return errors.New("it must have exactly one trigger")
	}
	if f.trigger.Name == "" {
		return errors.New("the trigger has no name")
	}

	f.isForwardable = f.isHTTP() && outputs == 1

	return nil
}

func (a *app) completeTrigger(f *function) error {
	b := &f.trigger
	switch {
	case f.isHTTP():
		return a.completeHTTP(f)
	case f.hasTrigger("queueTrigger"):
		return errors.Join(a.resolveSetting(b.QueueName, &b.queue), a.resolveConnection(b))
	case f.hasTrigger("timerTrigger"):
		if err := a.resolveSetting(b.Schedule, &b.pattern); err != nil {
			return err
		}
		_, err := parseSchedule(b.pattern)
		return err

	default:
		return fmt.Errorf("trigger %q is not supported here", b.Type)
	}
}

func (a *app) completeHTTP(f *function) error {
	if !slices.Contains([]string{"", "anonymous", "user", "function", "system", "admin"},
		strings.ToLower(f.trigger.AuthLevel)) {
		return fmt.Errorf("authLevel %q is unknown", f.trigger.AuthLevel)
	}

	route := f.name
	if f.trigger.Route != nil && *f.trigger.Route != "" {
		route = *f.trigger.Route
	}

	if first, _, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(route, "/")), "/"); first ==
		"admin" ||
		first == "runtime" {
		return fmt.Errorf("route %q is reserved", route)
	}

	t, err := parseTemplate(strings.Trim(a.routePrefix+"/"+strings.TrimPrefix(route, "/"), "/"))
	f.route = t

	return err
}

// unresolvedError means that function.json names an app setting that is not set. The host leaves
// such a function out, and serves all other functions.
type unresolvedError struct{ setting string }

func (e *unresolvedError) Error() string {
	return fmt.Sprintf("'%%%s%%' does not resolve to a value.", e.setting)
}

type indexingError struct {
	function string
	cause    error
}

func (e *indexingError) Error() string {
	return fmt.Sprintf("Error indexing method 'Functions.%s'. %v", e.function, e.cause)
}

func (e *indexingError) Unwrap() error { return e.cause }

func (a *app) resolveSetting(s string, to *string) error {
	text, missing := a.env.expandSettings(s)
	if missing != "" {
		return &unresolvedError{missing}
	}
	if text == "" {
		return errors.New("the trigger's queueName or schedule is missing")
	}

	*to = text

	return nil
}

func (a *app) resolveConnection(b *functionBinding) error {
	name := cmp.Or(b.Connection, "AzureWebJobsStorage")
	b.connection = cmp.Or(a.env.getVar("AzureWebJobs"+name), a.env.getVar(name))
	if b.connection == "" {
		return fmt.Errorf("app setting %s holds no connection string", name)
	}
	return nil
}

func (a *app) isDisabled(name string) bool {
	for _, setting := range []string{"AzureWebJobs." + name + ".Disabled",
		"AzureWebJobs_" + name + "_Disabled"} {
		if v := strings.ToLower(a.env.getVar(setting)); v == "true" || v == "1" {
			return true
		}
	}
	return false
}

// routeConflicts returns an error for each pair of HTTP functions that have the same route and
// share a method.
func (a *app) routeConflicts() []error {
	var out []error
	for i, f := range a.functions {
		for _, g := range a.functions[:i] {
			if f.isHTTP() && g.isHTTP() && strings.EqualFold(f.route.text, g.route.text) &&
				f.sharesMethod(g) {
				out = append(out,
					fmt.Errorf("function %q: the route %q conflicts with function %q", f.name,
						f.route.text, g.name))
			}
		}
	}

	return out
}

func (f *function) sharesMethod(g *function) bool {
	if len(f.trigger.Methods) == 0 || len(g.trigger.Methods) == 0 {
		return true
	}
	return slices.ContainsFunc(f.trigger.Methods, g.allowsMethod)
}

func (f *function) allowsMethod(method string) bool {
	return len(f.trigger.Methods) == 0 ||
		slices.ContainsFunc(f.trigger.Methods,
			func(m string) bool { return strings.EqualFold(m, method) })
}
