package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"weir/internal/app"
	"weir/internal/contract"
	"weir/internal/diagnosis"
	"weir/internal/trial"
	"weir/internal/weir"
	"weir/internal/wire"
)

const checkHelp = `Checks settings, contracts, the keys and certificate of weir serve, the host's file, storage and
the CMS, and prints a line for each: ok, or the problem and how to correct it. A warning names a
weakness with which Weir still works. The command changes nothing in storage, and writes nothing to the
CMS: it opens a connection, signs in if delivery.signIn is set, and sends one step of each contract: the
first step that only reads and needs no answer of another step. If that step needs a message, the
command takes a message of --sample.

With --offline it checks only weir.yaml: the settings and the contracts. It needs neither storage nor the
CMS, nor the variables that weir.yaml names, and does not look at delivery.signIn, delivery.tls and the
files of tls. make build ends with these lines if weir.yaml is wrong.

With FILE it checks only these messages, by the contracts of weir.yaml: the contract, key, version and
due time of each, or every problem with its line, and at the end each contract whose CMS gets the
document type declaration of a message. Nothing is sent; storage and the variables that
weir.yaml names are not needed. - is standard input.

With --compare-text FILE it lists the values of these messages that earlier versions read without the
text of inner elements, such as the title <title>Growth of <i>E. coli</i></title>.
` + headersHelp + `

With --json each check is a line {"name", "ok", "detail", "wrong", "todo", "warnings"}, and each FILE a
line {"file", "valid", "contract", "key", "version", "deliverAt", "problems", "hasDoctype"}. The command
ends with 1 if there is a problem.`

func newCheckCommand(s *console) *cobra.Command {
	var asJSON, isOffline, comparesText bool
	var samples []string
	headers := &headersFlag{}
	cmd := &cobra.Command{Use: "check [FILE…]",
		Short: "Check settings, storage and CMS, or messages", Long: checkHelp}
	addJSONFlag(cmd, &asJSON)
	cmd.Flags().StringArrayVar(&samples, "sample", nil,
		"look up this message in the CMS; may be repeated")
	cmd.Flags().BoolVar(&isOffline, "offline", false, "check only weir.yaml, without its variables")
	cmd.Flags().BoolVar(&comparesText, "compare-text", false,
		"list the values of FILE that earlier versions read without the text of inner elements")
	headers.addTo(cmd)
	s.addDataFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, contentType, err := headers.postOf(cmd.Context())
		switch {
		case err != nil:
			return err
		case len(headers.given) > 0 && len(args) == 0:
			return errors.New("--header is for the post of FILE; name FILE")
		case isOffline && (len(args) > 0 || len(samples) > 0):
			return errors.New(
				"--offline checks only weir.yaml; leave out FILE and --sample, or --offline")
		case comparesText && (isOffline || len(samples) > 0 || len(args) == 0):
			return errors.New(
				"--compare-text compares the values of messages; name FILE, and leave out " +
					"--offline and --sample")

		case isOffline:
			return asFailure(s.printFindings(app.DiagnoseOffline(s.env), asJSON), true)
		case len(args) == 0:
			return s.checkSystem(cmd.Context(), samples, asJSON)
		case len(samples) > 0:
			return errors.New("--sample is for the check of the CMS; leave out FILE or --sample")
		}

		files, err := resolveFiles(args)
		if err != nil {
			return err
		}
		if comparesText {
			err = s.compareText(ctx, contentType, files, asJSON)
		} else {
			err = s.checkFiles(ctx, contentType, files, asJSON)
		}

		return asFailure(err, errors.Is(err, errFindings))
	}

	return cmd
}

func (s *console) checkSystem(ctx context.Context, files []string, asJSON bool) error {
	files, err := resolveFiles(files)
	if err != nil {
		return err
	}

	var samples []diagnosis.Sample
	for _, file := range files {
		body, err := s.readFile(file)
		if err != nil {
			return asFailure(err, false)
		}
		samples = append(samples, diagnosis.Sample{File: file, Body: body})
	}

	return asFailure(s.printFindings(app.Diagnose(ctx, s.env, samples), asJSON), true)
}

func (s *console) checkFiles(ctx context.Context, contentType string, files []string,
	asJSON bool) error {
	trials, err := app.OpenTrials(s.env, false)
	if err != nil {
		return err
	}

	var result error

	// messages with a document type declaration that the CMS gets, by contract
	doctypes := map[string]int{}
	for _, file := range files {
		body, err := s.readFile(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}

		found, err := trials.Check(ctx, contentType, body)
		if err != nil {
			if found.Problems = problemsOf(err); found.Problems == nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}

		if len(found.Problems) > 0 {
			result = errFindings
		}

		if found.HasDoctype {
			doctypes[found.Message.Contract]++
		}

		if asJSON {
			err = s.printJSON(struct {
				File string `json:"file"`
				wire.Validation
				HasDoctype bool `json:"hasDoctype,omitempty"`
			}{file, wire.NewValidation(found.Message, found.Problems), found.HasDoctype})

			result = errors.Join(result, err)
			continue
		}

		s.printChecked(file, &found)
	}

	if !asJSON {
		for _, name := range slices.Sorted(maps.Keys(doctypes)) {
			s.printLine("contract %s: the CMS gets the document type declaration of these messages: %d; doctype: drop "+
				"in the contract leaves it out", sanitizeText(name), doctypes[name])
		}
	}

	return result
}

// problemsOf returns the problems of a message that Weir refuses, or nil if err has another reason.
func problemsOf(err error) []weir.Problem {
	var refused *weir.Error
	if !errors.As(err, &refused) || !slices.Contains([]weir.Kind{weir.Malformed, weir.Invalid,
		weir.TooLarge, weir.Unsupported}, refused.Kind) {
		return nil
	}
	if len(refused.Problems) > 0 {
		return refused.Problems
	}
	return []weir.Problem{{Message: refused.Message}}
}

// compareText lists the values of messages whose text differs from the text that earlier versions
// read.
func (s *console) compareText(ctx context.Context, contentType string, files []string,
	asJSON bool) error {
	trials, err := app.OpenTrials(s.env, false)
	if err != nil {
		return err
	}

	var result error
	differing := 0
	for _, file := range files {
		body, err := s.readFile(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}

		found, err := trials.CompareText(ctx, contentType, body)
		problems := problemsOf(err)
		if err != nil && problems == nil {
			return fmt.Errorf("%s: %w", file, err)
		}

		if differing += len(found); len(problems) > 0 {
			result = errFindings
		}

		if asJSON {
			if err := s.printJSON(newComparisonJSON(file, found, problems)); err != nil {
				return err
			}
			continue
		}

		s.printProblems(file, problems)

		for _, d := range found {
			s.printLine("%s  line %d: %s (%s): before %q, now %q", sanitizeText(file), d.Line,
				sanitizeText(d.Path), sanitizeText(d.Setting), d.Former, d.Present)
		}
	}

	if !asJSON {
		s.printLine("Values that differ: %d", differing)
	}

	return result
}

type comparisonJSON struct {
	File        string           `json:"file"`
	Differences []differenceJSON `json:"differences"`
	Problems    []weir.Problem   `json:"problems,omitempty"`
}

type differenceJSON struct {
	Path    string `json:"path"`
	Setting string `json:"setting"`
	Line    int    `json:"line"`
	Before  string `json:"before"`
	Now     string `json:"now"`
}

func newComparisonJSON(file string, found []contract.TextDifference,
	problems []weir.Problem) comparisonJSON {
	out := comparisonJSON{file, []differenceJSON{}, problems}
	for _, d := range found {
		out.Differences = append(out.Differences,
			differenceJSON{d.Path, d.Setting, d.Line, d.Former, d.Present})
	}
	return out
}

func (s *console) printChecked(file string, found *contract.Checked) {
	if len(found.Problems) == 0 {
		s.printLine("%s  ok  %s", sanitizeText(file),
			sanitizeText(trial.DescribeMessage(&found.Message)))
	}

	s.printProblems(file, found.Problems)
}

func (s *console) printProblems(file string, problems []weir.Problem) {
	for _, line := range trial.DescribeProblems(problems) {
		s.printLine("%s  wrong: %s", sanitizeText(file), sanitizeText(line))
	}
}

// errFindings means that a check found a problem. The command does not print this error, because
// each problem is already printed.
var errFindings = errors.New("something is wrong")

// printFindings prints the findings of a check. It returns errFindings if one is wrong.
func (s *console) printFindings(findings []diagnosis.Finding, asJSON bool) error {
	var err error
	for _, f := range findings {
		if f.Wrong != nil {
			err = errFindings
		}

		if asJSON {
			err = errors.Join(err, s.printJSON(findingToJSON(f)))
			continue
		}

		s.printFinding(f)
	}

	return err
}

func (s *console) printFinding(f diagnosis.Finding) {
	defer func() {
		for _, line := range f.Warnings {
			fmt.Fprintf(s.stdout, "%-9s warning: %s\n", f.Name, line)
		}
	}()

	if f.Wrong == nil {
		fmt.Fprintln(s.stdout, strings.TrimSpace(fmt.Sprintf("%-9s ok  %s", f.Name, f.Detail)))
		return
	}

	for line := range strings.SplitSeq(f.Wrong.Error(), "\n") {
		fmt.Fprintf(s.stdout, "%-9s wrong: %s; %s\n", f.Name, line, f.Todo)
	}
}

type findingJSON struct {
	Name   string   `json:"name"`
	OK     bool     `json:"ok"`
	Detail string   `json:"detail,omitempty"`
	Wrong  []string `json:"wrong,omitempty"`
	Todo   string   `json:"todo,omitempty"`

	Warnings []string `json:"warnings,omitempty"`
}

func findingToJSON(f diagnosis.Finding) findingJSON {
	if f.Wrong == nil {
		return findingJSON{Name: f.Name, OK: true, Detail: f.Detail, Warnings: f.Warnings}
	}
	return findingJSON{Name: f.Name, Wrong: strings.Split(f.Wrong.Error(), "\n"), Todo: f.Todo,
		Warnings: f.Warnings}
}
