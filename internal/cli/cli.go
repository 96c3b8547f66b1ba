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
	exitFailed      = 1   // the command failed; it has printed the reason
	exitUsage       = 2   // it was asked wrongly: an unknown command, a bad flag
	exitNotFound    = 3   // a Weir elsewhere knows no such thing
	exitRefused     = 4   // it refused
	exitUnavailable = 5   // it was not reached, or cannot work now
	exitRestart     = 200 // a host starts it again, and counts no error
)

const rootHelp = `Weir's handler levels writes to a CMS. Without a command it serves a Functions host,
which tells it a port by FUNCTIONS_CUSTOMHANDLER_PORT.

check, drain, lanes and poll work on storage, and read the same settings: the environment and
weir.yaml (WEIR_CONFIG). cancel, dead, pause, pauses, resume, send, status and tail speak to a Weir
over HTTP, and need only its address (WEIR_URL, --url) and a function key (WEIR_CODE, --code).

Exit codes: 0 done; 1 failed, with the reason on stderr; 2 wrong usage; and of those that
speak HTTP: 3 not found, 4 refused, 5 not reached or unavailable.`

// console is what the commands share: where they read and where they print.
type console struct {
	env            func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
	startedAt      time.Time     // when the process was
	firstRetryWait time.Duration // before what failed is tried again over HTTP
	pollInterval   time.Duration // between looks at what goes on elsewhere
	gracePeriod    time.Duration // how long requests under way may take to finish after Ctrl-C
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

// failure is an error of doing what was asked, as against one of asking. Silent ones have
// been told already.
type failure struct {
	err    error
	silent bool
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// asFailure makes a failure of an error, nil of nil.
func asFailure(err error, silent bool) error {
	if err == nil {
		return nil
	}
	return &failure{err, silent}
}

// run runs the command that the arguments name, and gives the exit code.
func (s *console) runCommand(ctx context.Context, args []string) int {
	root := s.newRootCommand()
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

// exitCode tells kinds of failures apart where a Weir elsewhere told them.
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

// printError prints an error, each of its lines.
func (s *console) printError(err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintln(s.stderr, "handler:", line)
	}
}

// newRootCommand makes the commands. None of them is serving.
func (s *console) newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "handler", Short: "Weir's handler", Long: rootHelp, Args: cobra.NoArgs,
		SilenceErrors: true, SilenceUsage: true, CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error { return asFailure(s.serveHost(cmd.Context()), true) },
	}
	root.SetOut(s.stdout)
	root.SetErr(s.stderr)
	root.AddCommand(s.pollCommand(), s.drainCommand(), s.lanesCommand(), s.checkCommand(), s.versionCommand(),
		s.sendCommand(), s.statusCommand(), s.tailCommand(), s.deadCommand(), s.cancelCommand(), s.pauseCommand(), s.resumeCommand(), s.pausesCommand())
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

// addVerboseFlag adds the flag that every command with logs has.
func addVerboseFlag(cmd *cobra.Command, verbose *bool) {
	cmd.Flags().BoolVarP(verbose, "verbose", "v", false, "log each attempt to stderr, not only warnings")
}

// addJSONFlag adds the flag of commands that have something to tell programs.
func addJSONFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON")
}
