package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"weir/internal/remote"
	"weir/internal/weir"
)

// apiCommand is the base of the commands that call the HTTP API of a Weir. These commands need no
// settings and no storage.
type apiCommand struct {
	*console
	address, key string
	json         bool
	client       *remote.Client
}

const exitHelp = "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 not found; 4 refused; 5 not reached or unavailable."

// addFlags adds the flags that all API commands have. Values from the environment are not defaults
// of the flags, because the help prints defaults, and the help must not print the function key.
func (a *apiCommand) addFlags(cmd *cobra.Command) {
	cmd.Long += "\n\n" + exitHelp
	flags := cmd.PersistentFlags()
	flags.StringVar(&a.address, "url", "",
		"address of Weir, like https://weir.example.net (or WEIR_URL)")
	flags.StringVar(&a.key, "code", "",
		"function key (or WEIR_CODE, which other users of the machine do not see)")
	flags.BoolVar(&a.json, "json", false, "print JSON")
}

// wrapRun returns a run function for a command. The run function makes the client, and then calls
// the function "do". The run function returns a usageError of "do" unchanged, and any other error
// of "do" as a failure.
func (a *apiCommand) wrapRun(do func(ctx context.Context, args []string) error) func(*cobra.Command,
	[]string) error {
	return func(cmd *cobra.Command, args []string) error {
		address := cmp.Or(a.address, a.env("WEIR_URL"))
		if address == "" {
			return errors.New("give the address of Weir by --url or WEIR_URL")
		}

		var err error
		key := cmp.Or(a.key, a.env("WEIR_CODE"))
		if a.client, err = remote.New(address, key); err != nil {
			return err
		}
		defer a.client.Close()
		if warning := warnClearTextKey(address, key); warning != "" {
			fmt.Fprintln(a.stderr, warning)
		}

		err = do(cmd.Context(), args)
		var wrong *usageError
		if errors.As(err, &wrong) {
			return err
		}

		var failed *failure
		if errors.As(err, &failed) {
			return err
		}

		if errors.Is(err, context.Canceled) {
			err = errors.New("interrupted")
		}

		return asFailure(err, false)
	}
}

// usageError is wrong usage that a command finds when it runs.
type usageError struct{ text string }

func (u *usageError) Error() string { return u.text }

// newPatience returns the Patience with which a command repeats requests while Weir is unavailable.
func (s *console) newPatience(giveUp time.Duration) *remote.Patience {
	return &remote.Patience{GiveUp: giveUp, First: s.firstRetryWait, Most: 30 * time.Second,
		Unreached: unreachedLimit}
}

// unreachedLimit is the time for which a command repeats requests to an address that has never
// answered. A Weir that is just starting answers within that time.
const unreachedLimit = 5 * time.Second

func (s *console) printLine(format string, args ...any) {
	fmt.Fprintf(s.stdout, format+"\n", args...)
}

func (s *console) printJSON(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	s.printLine("%s", data)
	return nil
}

// printTable applies sanitizeText to each field of the rows, and prints the rows in columns. The
// first row has the headings.
func (s *console) printTable(rows [][]string) {
	w := tabwriter.NewWriter(s.stdout, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		for i := range row {
			row[i] = sanitizeText(row[i])
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}

	w.Flush()
}

// sanitizeText makes text from outside safe for one line of a terminal. It replaces line breaks and
// tabs by spaces, and each other character that cannot be printed by U+FFFD. Otherwise such
// characters could control the terminal, or change the direction of writing.
func sanitizeText(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// sanitizeLines applies sanitizeText to each line of a text, but keeps tabs at the beginning of a
// line.
func sanitizeLines(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, "\r\n")
		text := strings.TrimLeft(line, "\t")
		b.WriteString(line[:len(line)-len(text)] + sanitizeText(text) + "\n")
	}
	return b.String()
}

// formatCount returns a number with its noun, such as "1 part" or "2 parts".
func formatCount[N int | int64](n N, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// readKeyFlag returns the value of the flag --key, or nil if the flag is not given.
func readKeyFlag(cmd *cobra.Command, key string) (*string, error) {
	switch {
	case !cmd.Flags().Changed("key"):
		return nil, nil
	case key == "":
		return nil, &usageError{"--key is empty"}
	}
	return &key, nil
}

// formatTime returns a time in UTC, or "" for the zero time.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// parseTimeOrAge parses the value of a flag: a time, or an age such as 24h, which means 24 hours
// ago. It returns nil if the text is empty.
func parseTimeOrAge(name, text string) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}

	if t, err := weir.ParseMoment(text); err == nil {
		return &t, nil
	}

	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return nil, &usageError{fmt.Sprintf("--%s is %q: give a moment like 2026-01-31T08:00:00Z, "+
			"or how long ago it was, like 24h", name, text)}
	}

	t := time.Now().Add(-d).UTC().Truncate(time.Second)

	return &t, nil
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
