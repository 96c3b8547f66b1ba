package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"weir/internal/remote"
	"weir/internal/weir"
)

// away is what the commands share that speak to a Weir over HTTP. They need no settings and
// no storage.
type away struct {
	*shell
	address, key string
	json         bool
	client       *remote.Client
}

const exitHelp = "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 not found; 4 refused; 5 not reached or unavailable."

// flags adds the flags they all have. The environment is no default, which help would print.
func (a *away) flags(cmd *cobra.Command) {
	cmd.Long += "\n\n" + exitHelp
	cmd.PersistentFlags().StringVar(&a.address, "url", "", "address of Weir, like https://weir.example.net (or WEIR_URL)")
	cmd.PersistentFlags().StringVar(&a.key, "code", "", "function key (or WEIR_CODE, which other users of the machine do not see)")
	cmd.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON")
}

// runs makes the run function of a command.
func (a *away) runs(do func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		address := cmp.Or(a.address, a.env("WEIR_URL"))
		if address == "" {
			return errors.New("give the address of Weir by --url or WEIR_URL")
		}
		var err error
		if a.client, err = remote.New(address, cmp.Or(a.key, a.env("WEIR_CODE"))); err != nil {
			return err
		}
		defer a.client.Close()
		err = do(cmd.Context(), args)
		var wrong *usage
		if errors.As(err, &wrong) {
			return err
		}
		var told *failure
		if errors.As(err, &told) {
			return err
		}
		if errors.Is(err, context.Canceled) {
			err = errors.New("interrupted")
		}
		return failed(err, false)
	}
}

// usage is an error of asking that shows only when it runs.
type usage struct{ text string }

func (u *usage) Error() string { return u.text }

// patience is how commands wait for a Weir that is away.
func (s *shell) patience(giveUp time.Duration) *remote.Patience {
	return &remote.Patience{GiveUp: giveUp, First: s.firstWait, Most: 30 * time.Second}
}

// print prints one line.
func (s *shell) print(format string, args ...any) { fmt.Fprintf(s.stdout, format+"\n", args...) }

// document prints JSON, a line.
func (s *shell) document(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	s.print("%s", data)
	return nil
}

// table prints rows in columns, the first being the heads.
func (s *shell) table(rows [][]string) {
	w := tabwriter.NewWriter(s.stdout, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		for i := range row {
			row[i] = plain(row[i])
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	w.Flush()
}

// plain makes text from elsewhere fit for a terminal and for one line: what would steer the
// terminal, or turn the direction of writing, is replaced.
func plain(s string) string {
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

// plainLines is plain, line by line.
func plainLines(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, "\r\n")
		b.WriteString(strings.Repeat("\t", len(line)-len(strings.TrimLeft(line, "\t"))) + plain(strings.TrimLeft(line, "\t")) + "\n")
	}
	return b.String()
}

// number writes how many of something there are.
func number(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + one + "s"
}

// keyOf reads --key; nil when it was not given.
func keyOf(cmd *cobra.Command, key string) (*string, error) {
	switch {
	case !cmd.Flags().Changed("key"):
		return nil, nil
	case key == "":
		return nil, &usage{"--key is empty"}
	}
	return &key, nil
}

// moment writes a time as people read it; empty for none.
func moment(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// ago reads a moment, or how long ago it was.
func ago(name, text string) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	if t, err := weir.ParseMoment(text); err == nil {
		return &t, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return nil, &usage{fmt.Sprintf("--%s is %q: give a moment like 2026-01-31T08:00:00Z, or how long ago it was, like 24h", name, text)}
	}
	t := time.Now().Add(-d).UTC().Truncate(time.Second)
	return &t, nil
}

// isTerminal says whether somebody looks at it, or types into it.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
