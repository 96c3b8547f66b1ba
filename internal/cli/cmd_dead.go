package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"weir/internal/contract"
	"weir/internal/remote"
)

const (
	deadHelp = `Lists dead messages, shows one, and has them delivered again.`

	deadListHelp = `Lists dead messages, those accepted last first, or with --errors what they died of, sorted by
error. A moment is given like 2026-01-31T08:00:00Z, or as how long ago it was, like 24h.`

	deadShowHelp = `Tells a dead message's story, with the CMS's answers and the body. --body prints the body
alone, byte for byte; else one in another encoding is shown in UTF-8. --edited shows the corrected body in place of the one that was
accepted; where there is one, what it changed is shown too. --json prints {"message", "body"},
and the "difference".`
)

func (s *shell) deadCommand() *cobra.Command {
	a := &away{shell: s}
	cmd := &cobra.Command{Use: "dead", Short: "List, show and replay dead messages", Long: deadHelp, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return &usage{"give list, show or replay"} }}
	a.flags(cmd)
	cmd.AddCommand(a.deadListCommand(), a.deadShowCommand(), a.deadReplayCommand())
	for _, each := range cmd.Commands() {
		each.Long += "\n\n" + exitHelp
	}
	return cmd
}

// deadFilter is which dead messages are meant.
type deadFilter struct {
	cmd           *cobra.Command
	key, contract string
	fingerprint   string
	from, to      string
	lane          int
}

// flags adds them. What is the event that --from and --to are about: the list of messages goes
// by acceptance, a replay by death.
func (f *deadFilter) flags(cmd *cobra.Command, what string) {
	f.cmd = cmd
	cmd.Flags().StringVar(&f.key, "key", "", "only those of this ordering key")
	cmd.Flags().IntVar(&f.lane, "lane", 0, "only those of this lane")
	cmd.Flags().StringVar(&f.contract, "contract", "", "only those of this contract")
	cmd.Flags().StringVar(&f.fingerprint, "fingerprint", "", "only those of this error, see dead list --errors")
	cmd.Flags().StringVar(&f.from, "from", "", "only those that "+what+" from this moment on")
	cmd.Flags().StringVar(&f.to, "to", "", "only those that "+what+" before this moment")
}

// filter reads the flags.
func (f *deadFilter) filter() (remote.Filter, error) {
	out := remote.Filter{Contract: f.contract, Fingerprint: f.fingerprint}
	if f.cmd.Flags().Changed("lane") {
		if f.lane < 0 {
			return out, &usage{"--lane must be 0 or more"}
		}
		out.Lane = &f.lane
	}
	var err error
	if out.Key, err = keyOf(f.cmd, f.key); err != nil {
		return out, err
	}
	if out.From, err = ago("from", f.from); err == nil {
		out.To, err = ago("to", f.to)
	}
	return out, err
}

// queryOf is a filter as the list of messages takes it.
func queryOf(f remote.Filter) url.Values {
	query := url.Values{"stage": {"dead"}}
	if f.Key != nil {
		query.Set("key", *f.Key)
	}
	if f.Lane != nil {
		query.Set("lane", strconv.Itoa(*f.Lane))
	}
	for name, text := range map[string]string{"contract": f.Contract, "fingerprint": f.Fingerprint} {
		if text != "" {
			query.Set(name, text)
		}
	}
	for name, t := range map[string]*time.Time{"from": f.From, "to": f.To} {
		if t != nil {
			query.Set(name, t.UTC().Format(time.RFC3339))
		}
	}
	return query
}

func (a *away) deadListCommand() *cobra.Command {
	var f deadFilter
	var text string
	var limit int
	var byError bool
	cmd := &cobra.Command{Use: "list", Short: "List dead messages", Long: deadListHelp, Args: cobra.NoArgs}
	f.flags(cmd, "were accepted")
	cmd.Flags().StringVar(&text, "text", "", "only those with this text in key, error or body")
	cmd.Flags().IntVar(&limit, "limit", 50, "how many at most")
	cmd.Flags().BoolVar(&byError, "errors", false, "sort them by error instead")
	for _, name := range []string{"key", "lane", "contract", "fingerprint", "from", "to", "text"} {
		cmd.MarkFlagsMutuallyExclusive("errors", name)
	}
	cmd.RunE = a.runs(func(ctx context.Context, _ []string) error {
		filter, err := f.filter()
		switch {
		case err != nil:
			return err
		case limit < 1:
			return &usage{"--limit must be 1 or more"}
		case byError:
			return a.deadErrors(ctx, limit)
		}
		query := queryOf(filter)
		if text != "" {
			query.Set("text", text)
		}
		return a.deadList(ctx, query, limit)
	})
	return cmd
}

// maxPage is the longest page that Weir gives.
const maxPage = 200

func (a *away) deadList(ctx context.Context, query url.Values, limit int) error {
	found := []json.RawMessage{}
	complete := false
	for len(found) < limit {
		query.Set("limit", strconv.Itoa(min(limit-len(found), maxPage)))
		page, err := a.client.Find(ctx, query)
		if err != nil {
			return err
		}
		found = append(found, page.Value.Messages...)
		if complete = page.Value.Complete || page.Value.Continue == ""; complete {
			break
		}
		query.Set("continue", page.Value.Continue)
	}
	if a.json {
		return a.document(map[string]any{"messages": found, "complete": complete})
	}
	rows := [][]string{{"DIED", "ID", "CONTRACT", "KEY", "ATTEMPTS", "REASON"}}
	for _, line := range found {
		var m remote.Message
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		rows = append(rows, []string{moment(m.FinishedAt), m.ID, m.Contract, m.Key, strconv.Itoa(m.Attempts), m.LastError})
	}
	return a.rows(rows, "No dead messages.", complete)
}

// rows prints a table, or that there is nothing.
func (a *away) rows(rows [][]string, none string, complete bool) error {
	if len(rows) > 1 {
		a.table(rows)
	} else if complete {
		a.print("%s", none)
	}
	if !complete {
		a.print("There is more: raise --limit.")
	}
	return nil
}

func (a *away) deadErrors(ctx context.Context, limit int) error {
	list, err := a.client.Errors(ctx, min(limit, maxPage))
	if err != nil {
		return err
	}
	if a.json {
		a.print("%s", list.JSON)
		return nil
	}
	rows := [][]string{{"LAST", "FINGERPRINT", "COUNT", "KEYS", "CONTRACT", "CMS", "ERROR"}}
	for _, e := range list.Value.Errors {
		status := ""
		if e.CMSStatus != 0 {
			status = strconv.Itoa(e.CMSStatus)
		}
		rows = append(rows, []string{moment(&e.LastAt), e.Fingerprint, strconv.Itoa(e.Count), strconv.Itoa(e.Keys), e.Contract, status, e.Message})
	}
	return a.rows(rows, "No dead messages.", list.Value.Complete)
}

// shown is how much of a body is shown among other things.
const shown = 64 << 10

func (a *away) deadShowCommand() *cobra.Command {
	var bodyOnly, edited bool
	cmd := &cobra.Command{Use: "show ID", Short: "Show a message with its attempts and its body", Long: deadShowHelp, Args: cobra.ExactArgs(1)}
	cmd.Flags().BoolVar(&bodyOnly, "body", false, "print the body alone")
	cmd.Flags().BoolVar(&edited, "edited", false, "the body as it was corrected")
	cmd.RunE = a.runs(func(ctx context.Context, args []string) error {
		body, err := a.client.Body(ctx, args[0], edited)
		if err != nil {
			return err
		}
		if bodyOnly {
			_, err := a.stdout.Write(body)
			return err
		}
		m, err := a.client.Message(ctx, args[0])
		if err != nil {
			return err
		}
		difference := ""
		if m.Value.Edited != nil {
			if difference, err = a.client.Difference(ctx, args[0]); err != nil {
				return err
			}
		}
		if a.json {
			d := map[string]any{"message": m.JSON, "body": readable(body)}
			if difference != "" {
				d["difference"] = difference
			}
			return a.document(d)
		}
		a.showDead(&m.Value, body)
		if difference != "" {
			a.print("\nWhat the correction changed:")
			a.showText(difference, "")
		}
		return nil
	})
	return cmd
}

func (a *away) showDead(m *remote.Message, body []byte) {
	a.story(m)
	last := ""
	for _, t := range m.AttemptLog {
		if t.Answer != "" && t.Answer != last { // most often it says the same each time
			a.print("\nThe CMS's answer to attempt %d:", t.Number)
			fmt.Fprint(a.stdout, plainLines(t.Answer))
			last = t.Answer
		}
	}
	a.print("\nThe body, %d bytes:", len(body))
	a.showText(readable(body), ": see --body")
}

// readable gives a body as text. One that is not in UTF-8 can be read neither on a terminal nor
// in JSON, which puts a mark in the place of what it does not know.
func readable(body []byte) string {
	if utf8.Valid(body) {
		return string(body)
	}
	text, err := contract.Text("application/xml", body)
	if err != nil { // the type it was sent with named an encoding
		return string(body)
	}
	return strings.TrimLeft(text, " ")
}

// showText shows the beginning of what others wrote; more says where the rest is.
func (a *away) showText(text, more string) {
	fmt.Fprint(a.stdout, plainLines(text[:min(len(text), shown)]))
	if len(text) > shown {
		a.print("… and %d bytes more%s.", len(text)-shown, more)
	}
}

// readFile reads a corrected body.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, &usage{err.Error()}
	case info.IsDir():
		return nil, &usage{name + " is a directory"}
	case info.Size() > maxFile:
		return nil, &usage{fmt.Sprintf("%s is over %d bytes", name, maxFile)}
	}
	return os.ReadFile(name)
}
