package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"weir/internal/app"
	"weir/internal/trial"
)

const tryHelp = `Shows the requests that each message would make, step by step, without sending one. It reads weir.yaml
(WEIR_CONFIG), and needs neither storage nor the CMS, nor the variables that weir.yaml names: they
are shown as ${NAME}. Secrets are shown as ….

A step without an answer ends the trial. The later steps are shown as far as they can be computed.
--answers takes answers from a file in YAML or JSON; - is standard input. The file has the answer of
each step by the step's name, or a list of answers in the order of the step's requests. The request
of a contract without steps is called request. A field "remembered" has the id of the CMS that an
earlier message of the key remembered.

    find:   { status: 200, json: [] }
    create: { status: 201, json: { id: 7 }, headers: { ETag: '"1"' } }

With --send, a request for which the file has no answer is sent to the CMS, and changes its content.
It passes by the lanes, so it can overtake messages that Weir delivers at the same time. --record
stores the CMS's answers as a file for --answers.

--expect DIR compares the requests with files in DIR, prints each difference and ends with 1 if there
is one; --update writes the files. Without FILE the messages are DIR/*.xml. For article.xml the
requests are in article.requests.txt, with the answers of article.answers.yaml if it is there. Each
article.CASE.answers.yaml makes another case, with article.CASE.requests.txt.

A note names each path of an expression that selects nothing in the message: its value is left out,
and each member of an answer that an expression reads and the answer lacks.
` + headersHelp + `

The verdict is delivered, retry, dead, unavailable, refused (by the contract), or open if an answer is
missing. Exit codes: 0 delivered or open, or as expected; 1 another verdict, a difference, or a file
or setting that cannot be read; 2 wrong usage.`

type tryOptions struct {
	answers, record, expect string // two files and a directory; "" = not given
	isLive                  bool   // --send
	update, json            bool
	headers                 headersFlag
	contentType             string // of the messages, by the headers
}

func newTryCommand(s *console) *cobra.Command {
	o := &tryOptions{}
	cmd := &cobra.Command{Use: "try FILE…", Short: "Show the requests that messages would make",
		Long: tryHelp}
	flags := cmd.Flags()
	flags.StringVar(&o.answers, "answers", "", "take answers from this file; - is standard input")
	flags.BoolVar(&o.isLive, "send", false, "send the requests to the CMS, and change its content")
	flags.StringVar(&o.record, "record", "", "store the answers of the CMS in this file")
	flags.StringVar(&o.expect, "expect", "",
		"compare the requests with the files of this directory")
	flags.BoolVar(&o.update, "update", false, "write the files of --expect")
	o.headers.addTo(cmd)
	addJSONFlag(cmd, &o.json)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.checkUsage(args); err != nil {
			return err
		}

		ctx, contentType, err := o.headers.postOf(cmd.Context())
		if err != nil {
			return err
		}

		o.contentType = contentType
		if o.expect != "" {
			return s.runExpect(ctx, o, args)
		}

		files, err := resolveFiles(args)
		if err != nil {
			return err
		}

		err = s.runTry(ctx, o, files)

		return asFailure(err, errors.Is(err, errVerdict))
	}

	return cmd
}

func (o *tryOptions) checkUsage(args []string) error {
	switch {
	case o.expect == "" && o.update:
		return errors.New("--update belongs to --expect")
	case o.expect != "" && (o.isLive || o.answers != "" || o.json):
		return errors.New("--expect takes its answers from its directory, and prints differences; " +
			"leave out --answers, --send and --json")
	case o.record != "" && (!o.isLive || len(args) != 1):
		return errors.New("--record belongs to --send with one FILE")
	case o.expect == "" && len(args) == 0:
		return errors.New("name the files of messages; - is standard input")
	}

	return nil
}

// errVerdict means that the result of a trial (Trial.Verdict) is neither "delivered" nor "open".
// The command does not print this error, because each result is already printed.
var errVerdict = errors.New("a verdict is neither delivered nor open")

func (s *console) runTry(ctx context.Context, o *tryOptions, files []string) error {
	answers, err := s.readAnswers(o.answers)
	if err != nil {
		return err
	}

	trials, err := app.OpenTrials(s.env, o.isLive)
	if err != nil {
		return err
	}

	recorded := map[string][]trial.Answer{}
	if o.record != "" {
		trials.RecordAnswers(func(step string, a trial.Answer) { recorded[step] = append(recorded[step], a) })
	}

	var bad error
	for _, file := range files {
		body, err := s.readFile(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}

		t := trials.Try(ctx, o.contentType, body, answers)
		if err := s.printTrial(o, file, &t); err != nil {
			return err
		}

		if t.Verdict != trial.Delivered && t.Verdict != trial.Open {
			bad = errVerdict
		}
	}

	if o.record != "" {
		if err := writeAnswers(o.record, recorded); err != nil {
			return err
		}
	}

	return bad
}

// writeAnswers writes a file of answers. Only the file's owner can read it, because the answers
// contain the CMS's content.
func writeAnswers(file string, answers map[string][]trial.Answer) error {
	text, err := trial.FormatAnswers(answers)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// readFile reads a file of at most maxFile bytes; "-" means standard input.
func (s *console) readFile(file string) ([]byte, error) {
	if file == "-" {
		return readLimited(s.stdin)
	}

	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	return readLimited(f)
}

func (s *console) readAnswers(file string) (trial.Answers, error) {
	if file == "" {
		return trial.Answers{}, nil
	}

	text, err := s.readFile(file)
	if err != nil {
		return trial.Answers{}, err
	}

	answers, err := trial.ParseAnswers(text)
	if err != nil {
		return trial.Answers{}, fmt.Errorf("%s: %w", file, err)
	}

	return answers, nil
}

func (s *console) printTrial(o *tryOptions, file string, t *trial.Trial) error {
	if o.json {
		return s.printJSON(struct {
			File string `json:"file"`
			*trial.Trial
		}{file, t})
	}

	s.printLine("%s: %s", sanitizeText(file), sanitizeLines(t.FormatText()))
	for _, warning := range t.Warnings {
		s.printLine("warning: %s", sanitizeText(warning))
	}

	for _, path := range t.SelectNothing {
		s.printLine("note: %s selects nothing in this message", sanitizeText(path))
	}

	for _, sentence := range t.MissingMembers {
		s.printLine("note: %s", sanitizeText(sentence))
	}

	if len(t.Unused) > 0 {
		s.printLine("not used: answers to %s\n", sanitizeText(strings.Join(t.Unused, ", ")))
	}

	return nil
}
