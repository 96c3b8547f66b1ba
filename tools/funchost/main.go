// Funchost replaces `func start` in development and end-to-end tests: it runs the functions of a
// script root on this machine. The documentation of package host lists what funchost reproduces of
// the behaviour of the real host.
//
//	funchost --script-root build/app [--port 7071] [--instances 2 | --instances http=2,process=1]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"weir/tools/funchost/host"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(runHost(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// runHost runs a host and returns the exit code: 0 after a stop by signal or for --help, 2 for
// wrong flags, 1 if the host did not start or ended with an error.
func runHost(ctx context.Context, args []string, getenv func(string) string, stdout,
	stderr io.Writer) int {
	cfg := host.Config{Out: stdout}
	flags := flag.NewFlagSet("funchost", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&cfg.ScriptRoot, "script-root", ".",
		"folder with host.json and the functions' folders")
	flags.IntVar(&cfg.Port, "port", 7071, "port to listen on, on 127.0.0.1; 0 = a free one")
	instances := flags.String("instances", "1",
		"how many instances to run, as scale-out would; by group as on Flex: http=2,process=1")
	group := flags.String("group", "",
		"run the listeners of one group only, as on Flex: http, or a function's name")
	flags.DurationVar(&cfg.IdleKill, "idle-kill", 0,
		"end an instance that has had no invocation for so long; 0 = never")
	flags.BoolVar(&cfg.Development, "development", false,
		"set AZURE_FUNCTIONS_ENVIRONMENT=Development, as func start does")
	flags.BoolVar(&cfg.EnableAuth, "enableAuth", false,
		"check keys, as in Azure; without it everyone is admin")
	flags.StringVar(&cfg.Key, "key", getenv("FUNCHOST_KEY"), "the function key (env FUNCHOST_KEY)")
	flags.Func("function-key", "a key of one function, as name=key; can be repeated",
		func(text string) error {
			name, key, ok := strings.Cut(text, "=")
			if !ok || name == "" || key == "" {
				return errors.New("want name=key")
			}

			if cfg.FunctionKeys == nil {
				cfg.FunctionKeys = map[string]string{}
			}

			cfg.FunctionKeys[name] = key

			return nil
		})

	flags.StringVar(&cfg.MasterKey, "master-key", getenv("FUNCHOST_MASTER_KEY"),
		"the master key (env FUNCHOST_MASTER_KEY)")
	flags.StringVar(&cfg.StateDir, "state-dir", "",
		"folder for the timers' status; empty = one of the script root's own in the temporary folder")
	flags.IntVar(&cfg.GiveUpAfter, "give-up-after", 3,
		"end after so many errors of one handler, as the real host; negative = never")
	flags.DurationVar(&cfg.MessageLease, "message-lease", 0,
		"how long a dequeued message is hidden; 0 = 10m, as by the real host")
	flags.Var(&cfg.HTTP, "http",
		"forwarding = as a host that does not know enableProxyingHttpRequest, proxying "+
			"(default) = as one that does")
	flags.BoolVar(&cfg.Traceparent, "traceparent", false,
		"add a trace that is not sampled to calls without one, as the host does with Application Insights")
	flags.DurationVar(&cfg.StopWait, "stop-wait", 0,
		"how long a stopping host waits for queue and timer invocations; 0 = 10s, as the real host")
	flags.DurationVar(&cfg.StopTakes, "stop-takes", 0,
		"how long a stopping host lives at least after it closed its socket: about 300ms for the real host")
	flags.BoolVar(&cfg.Orphan, "orphan", false,
		"leave a handler behind that outlasts --stop-wait or the host itself, as the real host does")
	flags.DurationVar(&cfg.ListenAfter, "listen-after", 0,
		"how long after the handlers' start to listen: about 1s for the real host")
	flags.BoolVar(&cfg.Quiet, "quiet", false, "no lines about single invocations that succeed")

	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}

	var err error
	if cfg.Groups, err = readGroups(*instances, *group); err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return 2
	}

	if err := host.Run(ctx, cfg); err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return 1
	}

	return 0
}

// readGroups returns the groups that the flags --instances and --group describe. It returns an
// error if both flags name groups.
func readGroups(instances, group string) ([]host.Group, error) {
	out, err := host.ParseGroups(instances)
	if err == nil && group != "" {
		if out[0].Name != "" {
			return nil, errors.New("--group: --instances names groups already")
		}
		out[0].Name = host.GroupName(group)
	}

	return out, err
}
