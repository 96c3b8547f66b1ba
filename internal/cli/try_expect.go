package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"weir/internal/app"
)

// Suffixes of the files in the directory of `weir try --expect`.
const (
	messageSuffix  = ".xml"
	answersSuffix  = ".answers.yaml"
	requestsSuffix = ".requests.txt"
)

// expectedCase has the names of three files: a message, the CMS's answers ("" = none), and the
// expected requests.
type expectedCase struct{ message, answers, requests string }

// errUnexpected means that requests differ from their file, or that a file belongs to no case. The
// command does not print this error, because the difference or the file is already printed.
var errUnexpected = &failure{errors.New("the requests are not as expected"), true}

// runExpect compares the requests of each case with the file of the case. With --update it writes
// each file that is missing or differs.
//
// args are the files of messages. Without args, runExpect takes all messages in the directory of
// --expect, and also reports files that belong to no case.
func (s *console) runExpect(ctx context.Context, o *tryOptions, args []string) error {
	isWholeDirectory := len(args) == 0
	if isWholeDirectory {
		args = []string{filepath.Join(o.expect, "*"+messageSuffix)}
	}

	files, err := resolveFiles(args)
	if err != nil {
		return err
	}

	cases, err := listCases(o.expect, files)
	if err != nil {
		return asFailure(err, false)
	}

	trials, err := app.OpenTrials(s.env, false)
	if err != nil {
		return asFailure(err, false)
	}

	var result error
	for _, c := range cases {
		isSame, err := s.runCase(ctx, trials, c, o)
		if err != nil {
			return asFailure(err, false)
		}

		if !isSame {
			result = errUnexpected
		}
	}

	if !isWholeDirectory {
		return result
	}

	left, err := listLeftOver(o.expect, cases)
	if err != nil {
		return asFailure(err, false)
	}

	for _, file := range left {
		s.printLine("%s belongs to no message and no answers; delete it", sanitizeText(file))
		result = errUnexpected
	}

	return result
}

// listCases returns the cases of the messages in files. A message has one case for each of its
// files of answers in dir. If dir has no such file, the message has a single case without answers.
func listCases(dir string, files []string) ([]expectedCase, error) {
	var cases []expectedCase
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		if file == "-" {
			return nil, errors.New("--expect needs the names of files, not standard input")
		}

		found, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}

		before := len(cases)

		for _, entry := range found {
			rest, isOurs := strings.CutPrefix(entry.Name(), name)
			if label, ok := strings.CutSuffix(rest, answersSuffix); isOurs && ok &&
				isCaseLabel(label) {
				cases = append(cases, expectedCase{file, filepath.Join(dir, entry.Name()),
					filepath.Join(dir, name+label+requestsSuffix)})
			}
		}

		if len(cases) == before {
			cases = append(cases,
				expectedCase{message: file, requests: filepath.Join(dir, name+requestsSuffix)})
		}
	}

	return cases, nil
}

// isCaseLabel reports whether a label is empty or has the form ".CASE", as in
// article.CASE.answers.yaml.
func isCaseLabel(label string) bool {
	return label == "" || strings.HasPrefix(label, ".") && strings.Count(label, ".") == 1
}

func listLeftOver(dir string, cases []expectedCase) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(dir, "*"+requestsSuffix))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(file string) bool {
		return slices.ContainsFunc(cases, func(c expectedCase) bool { return c.requests == file })
	}), nil
}

// runCase reports whether the file of a case has exactly the requests of the case. If the file
// differs and o.update is true, runCase writes the file and returns true.
func (s *console) runCase(ctx context.Context, trials *app.Trials, c expectedCase,
	o *tryOptions) (bool, error) {
	answers, err := s.readAnswers(c.answers)
	if err != nil {
		return false, err
	}

	body, err := s.readFile(c.message)
	if err != nil {
		return false, err
	}

	t := trials.Try(ctx, o.contentType, body, answers)
	got := t.FormatText()
	if len(t.Unused) > 0 {
		got += "not used: answers to " + strings.Join(t.Unused, ", ") + "\n"
	}

	want, err := os.ReadFile(c.requests)
	switch {
	case err != nil && !os.IsNotExist(err):
		return false, err
	case got == string(want):
		return true, nil
	case o.update:
		s.printLine("%s: written", sanitizeText(c.requests))
		return true, os.WriteFile(c.requests, []byte(got), 0o644)
	case os.IsNotExist(err):
		return false, fmt.Errorf("%s is missing; write it with --update", c.requests)
	}

	s.printLine("%s", sanitizeLines(udiff.Unified(c.requests, "now", string(want), got)))

	return false, nil
}
