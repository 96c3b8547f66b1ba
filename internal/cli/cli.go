package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/app"
	"weir/internal/remote"
	"weir/internal/settings"
)

// Exit codes of the process.
const (
	exitOK     = 0
	exitFailed = 1 // the command failed, and printed the reason
	exitUsage  = 2 // wrong usage: an unknown command, a bad flag
	// the API does not have the message, schedule or other thing that the command names
	exitNotFound    = 3
	exitRefused     = 4   // the API refused the request
	exitUnavailable = 5   // the API was not reached, or is unavailable
	exitRestart     = 200 // the host starts the process again, and counts no failure
)

const rootHelp = `Weir queues XML messages and writes them to a CMS, in order. A Functions host starts it without a
command, and passes a port in FUNCTIONS_CUSTOMHANDLER_PORT.

serve runs all of Weir in one process, without a Functions host.

backup and restore copy the folder of serve; copy moves it to a storage account, or back.

check, consume, drain, lanes, poll and verify work on storage. They read the same settings as the
server: the environment and weir.yaml (WEIR_CONFIG). try needs weir.yaml alone. audit, cancel, dead,
discard, erase, list, pause, pauses, remembered, resume, schedules, send, status, tail and versions
call the HTTP API of a Weir. They need only its address (WEIR_URL, --url) and a function key
(WEIR_CODE, --code).

Exit codes: 0 done; 1 failed, with the reason on stderr; 2 wrong usage. Commands that call the
HTTP API also use 3 not found, 4 refused, 5 not reached or unavailable.`

// console has the environment, the streams and the waiting times of all commands.
type console struct {
	env            func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
	startedAt      time.Time     // start of the process
	firstRetryWait time.Duration // pause before the first retry of a request
	pollInterval   time.Duration // pause between two reads of a bulk replay's state
	// time after Ctrl-C in which posts of the command "send" may still finish
	gracePeriod time.Duration
}

// Run runs the command that the arguments name, and returns the exit code. If the arguments name no
// command, Run serves a Functions host. The command stops when ctx ends.
func Run(ctx context.Context, args []string, startedAt time.Time) int {
	s := &console{env: os.Getenv, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		startedAt:      startedAt,
		firstRetryWait: 500 * time.Millisecond, pollInterval: 2 * time.Second,
		gracePeriod: 5 * time.Second}
	return s.runCommand(ctx, args)
}

func (s *console) serveHost(ctx context.Context) error {
	return app.Serve(ctx, app.Process{Env: s.env, Stdout: s.stdout, Stderr: s.stderr,
		StartedAt: s.startedAt})
}

// failure is the error of a command that was called correctly. An error of any other type means
// wrong usage.
type failure struct {
	err    error
	silent bool // err was printed already
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// asFailure returns err as a failure; nil if err is nil.
func asFailure(err error, silent bool) error {
	if err == nil {
		return nil
	}
	return &failure{err, silent}
}

func (s *console) runCommand(ctx context.Context, args []string) int {
	root := newRootCommand(s)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var f *failure
	switch {
	case err == nil:
		return exitOK
	case !errors.As(err, &f):
		s.printError(err)
		fmt.Fprintf(s.stderr, "See '%s --help'.\n", cmd.CommandPath())
		return exitUsage

	case !f.silent:
		s.printError(err)
	}

	return exitCode(f.err)
}

func exitCode(err error) int {
	if restart := (*app.RestartError)(nil); errors.As(err, &restart) {
		return exitRestart
	}

	switch remote.KindOf(err) {
	case remote.NotFound:
		return exitNotFound
	case remote.Refused:
		return exitRefused
	case remote.Unavailable:
		return exitUnavailable
	}

	return exitFailed
}

func (s *console) printError(err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(s.stderr, "weir:", line)
	}
}

// newRootCommand returns the command weir with all its subcommands. Without a subcommand, weir
// serves a Functions host.
func newRootCommand(s *console) *cobra.Command {
	root := &cobra.Command{
		Use: "weir", Short: "Weir's commands", Long: rootHelp, Args: refuseUnknownCommand,
		SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !settings.IsHosted(s.env) {
				fmt.Fprintf(s.stderr, "%s\n\n%s\n", cmd.Long, cmd.UsageString())
				return &usageError{"name a command: no Functions host has started this process"}
			}
			return asFailure(s.serveHost(cmd.Context()), true)
		},
	}

	root.SetFlagErrorFunc(suggestFlag)
	root.SetOut(s.stdout)
	root.SetErr(s.stderr)
	root.AddCommand(newServeCommand(s), newKeyCommand(s), newBackupCommand(s), newRestoreCommand(s),
		newCopyCommand(s),
		newListCommand(s), newPollCommand(s), newConsumeCommand(s), newDrainCommand(s),
		newLanesCommand(s),
		newCheckCommand(s), newVerifyCommand(s), newVersionCommand(s), newSendCommand(s),
		newStatusCommand(s), newTailCommand(s), newDeadCommand(s),
		newAuditCommand(s), newTryCommand(s),
		newCancelCommand(s), newDiscardCommand(s), newPauseCommand(s), newResumeCommand(s),
		newPausesCommand(s),
		newVersionsCommand(s), newRememberedCommand(s), newEraseCommand(s), newSchedulesCommand(s))

	return root
}

// openApp makes the App for a command. The App logs to stderr, because stdout is for the output of
// the command. The caller must Close the App.
func (s *console) openApp(ctx context.Context, verbose bool) (*app.App, error) {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	local := slog.NewJSONHandler(s.stderr, &slog.HandlerOptions{Level: level})
	return app.NewForCommand(ctx, s.env, local)
}

// addDataFlag adds the flag that names a folder in place of the storage account. The command sees
// the folder in its environment, as a command with the variable WEIR_DATA does.
func (s *console) addDataFlag(cmd *cobra.Command) {
	var data string
	cmd.Flags().StringVar(&data, "data", "",
		"folder of weir serve, in place of a storage account (or WEIR_DATA)")
	cmd.PreRun = func(*cobra.Command, []string) {
		if data != "" {
			s.env = overlay(s.env, map[string]string{settings.DataVariable: data})
		}
	}
}

func addVerboseFlag(cmd *cobra.Command, verbose *bool) {
	cmd.Flags().BoolVarP(verbose, "verbose", "v", false,
		"log each attempt to stderr, not only warnings")
}

func addJSONFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON")
}
