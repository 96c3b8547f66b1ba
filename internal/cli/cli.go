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
)

// Exit codes of the process.
const (
	exitOK          = 0
	exitFailed      = 1   // the command failed, and printed the reason
	exitUsage       = 2   // wrong usage: an unknown command, a bad flag
	exitNotFound    = 3   // the API answered that there is no such thing
	exitRefused     = 4   // the API refused the request
	exitUnavailable = 5   // the API was not reached, or is unavailable
	exitRestart     = 200 // the host starts the process again, and counts no failure
)

const rootHelp = `Weir's handler levels writes to a CMS. Without a command it serves a Functions host,
which passes a port in FUNCTIONS_CUSTOMHANDLER_PORT.

check, drain, lanes and poll work on storage. They read the same settings as the server: the
environment and weir.yaml (WEIR_CONFIG). audit, cancel, dead, pause, pauses, resume, send, status and
tail call the HTTP API of a Weir. They need only its address (WEIR_URL, --url) and a function
key (WEIR_CODE, --code).

Exit codes: 0 done; 1 failed, with the reason on stderr; 2 wrong usage. Commands that call the
HTTP API also use 3 not found, 4 refused, 5 not reached or unavailable.`

// console is what all commands share: environment, streams and pauses.
type console struct {
	env            func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
	startedAt      time.Time     // of the process
	firstRetryWait time.Duration // before the first retry of a request
	pollInterval   time.Duration // between two reads of a bulk replay
	gracePeriod    time.Duration // for requests in flight after Ctrl-C
}

// Run runs the command that the arguments name, and returns the exit code. Without a command it serves a
// Functions host. ctx ends when the process is told to stop.
func Run(ctx context.Context, args []string, startedAt time.Time) int {
	s := &console{env: os.Getenv, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, startedAt: startedAt,
		firstRetryWait: 500 * time.Millisecond, pollInterval: 2 * time.Second, gracePeriod: 5 * time.Second}
	return s.runCommand(ctx, args)
}

// serveHost serves a Functions host.
func (s *console) serveHost(ctx context.Context) error {
	return app.Serve(ctx, app.Process{Env: s.env, Stdout: s.stdout, Stderr: s.stderr, StartedAt: s.startedAt})
}

// failure is the error of a command that was called correctly. A silent failure has been printed already.
// Every error of another type means wrong usage.
type failure struct {
	err    error
	silent bool
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

// runCommand runs the command that the arguments name, and returns the exit code.
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

// exitCode returns the exit code of a failure.
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

// printError prints each line of an error.
func (s *console) printError(err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(s.stderr, "handler:", line)
	}
}

// newRootCommand returns the command `handler` with all its subcommands. Without one it serves a Functions host.
func newRootCommand(s *console) *cobra.Command {
	root := &cobra.Command{
		Use: "handler", Short: "Weir's handler", Long: rootHelp, Args: cobra.NoArgs,
		SilenceErrors: true, SilenceUsage: true, CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error { return asFailure(s.serveHost(cmd.Context()), true) },
	}
	root.SetOut(s.stdout)
	root.SetErr(s.stderr)
	root.AddCommand(newPollCommand(s), newDrainCommand(s), newLanesCommand(s), newCheckCommand(s), newVerifyCommand(s),
		newVersionCommand(s), newSendCommand(s), newStatusCommand(s), newTailCommand(s), newDeadCommand(s), newAuditCommand(s),
		newCancelCommand(s), newPauseCommand(s), newResumeCommand(s), newPausesCommand(s))
	return root
}

// openApp makes the App for a command. Its logs go to stderr, because stdout is for the output of the
// command. The caller must Close it.
func (s *console) openApp(ctx context.Context, verbose bool) (*app.App, error) {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	return app.NewForCommand(ctx, s.env, slog.NewJSONHandler(s.stderr, &slog.HandlerOptions{Level: level}))
}

// addVerboseFlag adds the flag of commands that log.
func addVerboseFlag(cmd *cobra.Command, verbose *bool) {
	cmd.Flags().BoolVarP(verbose, "verbose", "v", false, "log each attempt to stderr, not only warnings")
}

// addJSONFlag adds the flag of commands with output for programs.
func addJSONFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON")
}
