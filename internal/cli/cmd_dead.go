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
	"weir/internal/wire"
)

const (
	deadHelp = `Lists dead messages, shows one, and replays them.`

	deadListHelp = `Lists dead messages, the last accepted first. With --errors it lists the errors that they died of.
--from and --to bound the time of death, as they do for dead replay and discard. A time is given
like 2026-01-31T08:00:00Z, or as an age, like 24h.

--format csv and --format json print a file of up to 10,000 messages, or of 200 errors. If there are
more, CSV ends in a line in parentheses, and JSON has "complete": false.`

	deadShowHelp = `Prints the history of a dead message, with the CMS's answers and the body. A body in another
encoding is shown in UTF-8; --body prints only the body, byte for byte. If the body was corrected,
the difference is shown, too; --edited shows the corrected body instead of the accepted one.
[redacted] stands in place of values that the contract redacts; --reveal prints only the body, with
these values, and needs the key of write. --json prints {"message", "body"}, and the "difference" if
there is one.`
)

func newDeadCommand(s *console) *cobra.Command {
	a := &apiCommand{console: s}
	cmd := &cobra.Command{Use: "dead", Short: "List, show and replay dead messages", Long: deadHelp,
		Args: refuseUnknownCommand,
		RunE: func(*cobra.Command, []string) error {
			return &usageError{"give list, show or replay"}
		}}

	a.addFlags(cmd)
	cmd.AddCommand(newDeadListCommand(a), newDeadShowCommand(a), newDeadReplayCommand(a))
	for _, each := range cmd.Commands() {
		each.Long += "\n\n" + exitHelp
	}

	return cmd
}

type deadFilter struct {
	cmd           *cobra.Command
	key, contract string
	fingerprint   string
	from, to      string
	lane          int
}

func (f *deadFilter) addFlags(cmd *cobra.Command) {
	f.cmd = cmd
	cmd.Flags().StringVar(&f.key, "key", "", "only messages of this ordering key")
	cmd.Flags().IntVar(&f.lane, "lane", 0, "only messages of this lane")
	cmd.Flags().StringVar(&f.contract, "contract", "", "only messages of this contract")
	cmd.Flags().StringVar(&f.fingerprint, "fingerprint", "",
		"only messages of this error, see dead list --errors")
	cmd.Flags().StringVar(&f.from, "from", "", "only messages that died from this moment on")
	cmd.Flags().StringVar(&f.to, "to", "", "only messages that died before this moment")
}

func (f *deadFilter) readFilter() (wire.DeadFilter, error) {
	out := wire.DeadFilter{Contract: textOrNil(f.contract), Fingerprint: textOrNil(f.fingerprint)}
	if f.cmd.Flags().Changed("lane") {
		if f.lane < 0 {
			return out, &usageError{"--lane must be 0 or more"}
		}
		out.Lane = &f.lane
	}

	var err error
	if out.Key, err = readKeyFlag(f.cmd, f.key); err != nil {
		return out, err
	}

	if out.From, err = parseTimeOrAge("from", f.from); err == nil {
		out.To, err = parseTimeOrAge("to", f.to)
	}

	return out, err
}

// textOrNil returns the value of a field that is left out if the text is empty.
func textOrNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func buildQuery(f wire.DeadFilter) url.Values {
	query := url.Values{"stage": {"dead"}}
	if f.Key != nil {
		query.Set("key", *f.Key)
	}

	if f.Lane != nil {
		query.Set("lane", strconv.Itoa(*f.Lane))
	}

	for name, text := range map[string]*string{"contract": f.Contract,
		"fingerprint": f.Fingerprint} {
		if text != nil {
			query.Set(name, *text)
		}
	}

	for name, t := range map[string]*time.Time{"finishedFrom": f.From, "finishedTo": f.To} {
		if t != nil {
			query.Set(name, t.UTC().Format(time.RFC3339))
		}
	}

	return query
}

func newDeadListCommand(a *apiCommand) *cobra.Command {
	var f deadFilter
	var text string
	var limit int
	var byError bool
	var file exportFlag
	cmd := &cobra.Command{Use: "list", Short: "List dead messages", Long: deadListHelp,
		Args: cobra.NoArgs}
	f.addFlags(cmd)
	cmd.Flags().StringVar(&text, "text", "", "only messages with this text in key, error or body")
	cmd.Flags().IntVar(&limit, "limit", 50,
		"messages or errors at most; the default of --format is the most that "+"Weir allows")
	file.addFlag(cmd)
	cmd.Flags().BoolVar(&byError, "errors", false, "list the errors instead of the messages")
	for _, name := range []string{"key", "lane", "contract", "fingerprint", "from", "to", "text"} {
		cmd.MarkFlagsMutuallyExclusive("errors", name)
	}

	cmd.RunE = a.wrapRun(func(ctx context.Context, _ []string) error {
		filter, err := f.readFilter()
		switch {
		case err != nil:
			return err
		case limit < 1:
			return &usageError{"--limit must be 1 or more"}
		case byError && file.isGiven():
			return file.printList(ctx, a, cmd, "/errors",
				url.Values{"limit": {strconv.Itoa(maxPage)}}, min(limit, maxPage))
		case byError:
			return a.printDeadErrors(ctx, limit)
		}

		query := buildQuery(filter)
		if text != "" {
			query.Set("text", text)
		}

		if file.isGiven() {
			return file.printList(ctx, a, cmd, "/messages", query, limit)
		}

		return a.printDeadList(ctx, query, limit)
	})

	return cmd
}

// maxPage is the largest number of entries that the API returns in one page.
const maxPage = 200

// beginAnew reports whether a list has to be read from its beginning, because err is about an
// outdated position. It then prints a line about that.
func (a *apiCommand) beginAnew(err error) bool {
	if !remote.IsOutdated(err) {
		return false
	}
	fmt.Fprintln(a.stderr, "weir: the number of lanes has changed meanwhile: beginning anew")
	return true
}

func (a *apiCommand) printDeadList(ctx context.Context, query url.Values, limit int) error {
	found := []json.RawMessage{}
	complete := false
	for len(found) < limit {
		query.Set("limit", strconv.Itoa(min(limit-len(found), maxPage)))
		page, err := a.client.Find(ctx, query)
		if a.beginAnew(err) {
			found = found[:0]
			query.Del("continue")
			continue
		}

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
		return a.printJSON(map[string]any{"messages": found, "complete": complete})
	}

	rows := [][]string{{"DIED", "ID", "CONTRACT", "KEY", "ATTEMPTS", "REASON"}}
	for _, line := range found {
		var m wire.Message
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		rows = append(rows, []string{formatTime(m.FinishedAt), m.ID, m.Contract, m.Key,
			strconv.Itoa(m.AttemptCount), m.LastError})
	}

	return a.printRows(rows, "No dead messages.", complete)
}

// printRows prints a table whose first row has the headings. If a complete list has no other row,
// printRows prints the parameter "none" instead.
func (a *apiCommand) printRows(rows [][]string, none string, complete bool) error {
	if len(rows) > 1 {
		a.printTable(rows)
	} else if complete {
		a.printLine("%s", none)
	}

	if !complete {
		a.printLine("There is more: raise --limit.")
	}

	return nil
}

func (a *apiCommand) printDeadErrors(ctx context.Context, limit int) error {
	list, err := a.client.Errors(ctx, min(limit, maxPage))
	if err != nil {
		return err
	}

	if a.json {
		a.printLine("%s", list.JSON)
		return nil
	}

	rows := [][]string{{"LAST", "FINGERPRINT", "COUNT", "KEYS", "CONTRACT", "CMS",
		"ERROR", "SAMPLE"}}

	for _, e := range list.Value.Errors {
		status := ""
		if e.CMSStatus != 0 {
			status = strconv.Itoa(e.CMSStatus)
		}
		rows = append(rows, []string{formatTime(e.LastAt), e.Fingerprint, strconv.Itoa(e.Count),
			strconv.Itoa(e.Keys), e.Contract, status, e.Message, describeSample(e)})
	}

	return a.printRows(rows, "No dead messages.", list.Value.Complete)
}

// describeSample returns the words of one of the failures, with the key of its message. In the text
// of the group, placeholders stand for all that differs between the failures.
func describeSample(e wire.ErrorCause) string { return e.Sample.Key + afterColon(e.Sample.Reason) }

// maxShown is the largest number of bytes that printText prints.
const maxShown = 64 << 10

func newDeadShowCommand(a *apiCommand) *cobra.Command {
	var bodyOnly, edited, revealed bool
	cmd := &cobra.Command{Use: "show ID", Short: "Show a message with its attempts and its body",
		Long: deadShowHelp, Args: requireArguments(1, 1, "a message's id")}
	cmd.Flags().BoolVar(&bodyOnly, "body", false, "print the body alone")
	cmd.Flags().BoolVar(&edited, "edited", false, "the body as it was corrected")
	cmd.Flags().BoolVar(&revealed, "reveal", false,
		"print the body alone, with its redacted values; needs the key of write")
	cmd.RunE = a.wrapRun(func(ctx context.Context, args []string) error {
		id, err := parseMessageID(args[0])
		if err != nil {
			return err
		}

		readBody := a.client.Body
		if revealed {
			readBody = a.client.Reveal
		}

		body, err := readBody(ctx, id, edited)
		if err != nil {
			return err
		}

		if bodyOnly || revealed {
			_, err := a.stdout.Write(body)
			return err
		}

		m, err := a.client.Message(ctx, id)
		if err != nil {
			return err
		}

		difference := ""
		if m.Value.Edited.Exists() {
			if difference, err = a.client.Difference(ctx, id); err != nil {
				return err
			}
		}

		if a.json {
			d := map[string]any{"message": m.JSON, "body": decodeBody(body)}
			if difference != "" {
				d["difference"] = difference
			}
			return a.printJSON(d)
		}

		a.printDead(&m.Value, body)

		if difference != "" {
			a.printLine("\nWhat the correction changed:")
			a.printText(difference, "")
		}

		return nil
	})

	return cmd
}

func (a *apiCommand) printDead(m *wire.Message, body []byte) {
	a.printStory(m)
	last := ""
	for _, t := range m.AttemptLog {
		if t.Answer != "" && t.Answer != last { // consecutive attempts often get the same answer
			a.printLine("\nThe CMS's answer to attempt %d:", t.Number)
			fmt.Fprint(a.stdout, sanitizeLines(t.Answer))
			last = t.Answer
		}
	}

	a.printLine("\nThe body, %d bytes:", len(body))
	a.printText(decodeBody(body), ": see --body")
}

// decodeBody converts a body to UTF-8, which terminals and JSON need. If the body cannot be
// decoded, decodeBody returns the body unchanged.
func decodeBody(body []byte) string {
	if utf8.Valid(body) {
		return string(body)
	}

	text, err := contract.Text("application/xml", body)
	if err != nil { // perhaps only the Content-Type, which is not known here, names the encoding
		return string(body)
	}

	return strings.TrimLeft(text, " ")
}

// printText prints at most maxShown bytes of an untrusted text. If the text is longer, printText
// adds the number of the remaining bytes and the hint in the parameter "more".
func (a *apiCommand) printText(text, more string) {
	fmt.Fprint(a.stdout, sanitizeLines(text[:min(len(text), maxShown)]))
	if len(text) > maxShown {
		a.printLine("… and %d bytes more%s.", len(text)-maxShown, more)
	}
}

func readBodyFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, &usageError{describeFileError(err)}
	case info.IsDir():
		return nil, &usageError{name + " is a directory"}
	case info.Size() > maxFile:
		return nil, &usageError{fmt.Sprintf("%s is over %d bytes", name, maxFile)}
	}

	return os.ReadFile(name)
}
