package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"weir/internal/remote"
	"weir/internal/upstream"
	"weir/internal/weir"
	"weir/internal/wire"
)

const sendHelp = `Sends each file as a message; - is standard input, and a directory stands for the files *.xml in it.
The command expands a quoted pattern ('*.xml'). The idempotency key of a message is made of its
content. So if you send the same files again after an interruption, no message is filed twice.

Files are sent in the given order, but several at a time (-p): if two files have the same ordering
key and their order matters, use -p 1. A file that cannot be accepted now (503, 429, no
connection) is sent again, until no file was accepted for --give-up. If the address never answered,
the command gives up after 5 s.

With --json each file is a line {"file", "id", "stage", "key", "duplicate"} or {"file", "error",
"status", "problems"}, and the last line is {"summary"}. The command ends with 4 if a file was
refused, and with 1 if a file could not be read or, with --wait, a message is dead, cancelled or
discarded in the end. Ctrl-C finishes the requests in flight, and prints the summary.

With --batch or --split each file is a batch: Weir makes a message of each part. The command sends
the files one after the other, and shows the progress of each until all its parts are filed, or,
with --wait, final. It prints the problems of the invalid parts. With --json it prints a line for
each file, with its batch. It ends with 4 if a batch was rejected.`

type sendFlags struct {
	batch    bool     // each file is a batch
	split    []string // paths of the messages in a batch
	mode     string
	parallel int
	giveUp   time.Duration // the command gives up if no file was accepted for this time
	wait     waitFlag
	sender   senderFlags
}

// senderFlags has the flags for the sending upstream: its name, its key and its signature scheme.
type senderFlags struct{ name, key, scheme string }

// readSender returns the upstream's credentials, or nil if none are given. Flags take precedence
// over the environment.
func (f *senderFlags) readSender(env func(string) string) (*upstream.Sender, error) {
	s := &upstream.Sender{Name: cmp.Or(f.name, env("WEIR_UPSTREAM")),
		Scheme: upstream.Scheme(f.scheme)}
	switch {
	case f.scheme == "":
		s.Key = cmp.Or(f.key, env("WEIR_UPSTREAM_KEY"))
		switch {
		case s.Key != "":
			if err := upstream.CheckKey(s.Key); err != nil {
				return nil, &usageError{"the key of the upstream: " + err.Error()}
			}
			return s, nil

		case f.name != "":
			return nil, &usageError{"--upstream needs --upstream-key or --sign"}
		}

		return nil, nil

	case f.key != "":
		return nil, &usageError{"--upstream-key and --sign exclude each other"}
	case s.Scheme != upstream.GitHub && s.Scheme != upstream.StandardWebhooks:
		return nil, &usageError{"--sign must be github or standard"}
	case s.Name == "":
		return nil, &usageError{
			"--sign needs --upstream or WEIR_UPSTREAM: the name of the upstream"}
	}

	var err error
	if s.Secret, err = upstream.ParseSecret(s.Scheme, env("WEIR_UPSTREAM_SECRET")); err != nil {
		return nil, &usageError{"--sign takes the secret from WEIR_UPSTREAM_SECRET: " + err.Error()}
	}

	return s, nil
}

func newSendCommand(s *console) *cobra.Command {
	a, f := &apiCommand{console: s}, sendFlags{}
	cmd := &cobra.Command{Use: "send FILE…|-", Short: "Send files as messages", Long: sendHelp,
		Args: requireArguments(1, -1, "files or directories")}
	a.addFlags(cmd)
	cmd.Flags().IntVarP(&f.parallel, "parallel", "p", 4, "files sent at a time, 1 to 64")
	addDurationFlag(cmd.Flags(), &f.giveUp, "give-up", 5*time.Minute,
		"stop if no file was accepted for so long; 0s tries each file once")
	addWaitFlag(cmd, &f.wait, "wait until all are final")
	cmd.Flags().BoolVar(&f.batch, "batch", false,
		"send each file as a batch: a document with many messages, or a zip (keys of batches and status)")
	cmd.Flags().StringArrayVar(&f.split, "split", nil,
		"path of the messages in a batch, such as /feed/article; implies --batch")
	cmd.Flags().StringVar(&f.mode, "mode", string(wire.BatchAll),
		"of a batch with invalid parts: all files none, valid the others")
	cmd.Flags().StringVar(&f.sender.name, "upstream", "",
		"name of the upstream that sends (or WEIR_UPSTREAM)")
	cmd.Flags().StringVar(&f.sender.key, "upstream-key", "",
		"key of the upstream (or WEIR_UPSTREAM_KEY, which other users of the machine do not see)")
	cmd.Flags().StringVar(&f.sender.scheme, "sign", "",
		"sign as github or standard (Standard Webhooks), with the secret in WEIR_UPSTREAM_SECRET")
	cmd.RunE = a.wrapRun(func(ctx context.Context, args []string) error {
		if f.parallel < 1 || f.parallel > 64 {
			return &usageError{fmt.Sprintf("--parallel is %d, and must be 1 to 64", f.parallel)}
		}
		if f.giveUp < 0 {
			return &usageError{"--give-up must be 0s or more"}
		}
		if f.mode != string(wire.BatchAll) && f.mode != string(wire.BatchValid) {
			return &usageError{"--mode must be all or valid"}
		}

		files, err := resolveFiles(args)
		if err != nil {
			return err
		}

		if a.client.Sender, err = f.sender.readSender(a.env); err != nil {
			return err
		}

		run := &sendRun{apiCommand: a, sendFlags: f, files: files,
			patience: a.newPatience(f.giveUp)}
		run.patience.Report = run.reportRetry
		if f.batch || len(f.split) > 0 {
			return run.sendBatches(ctx)
		}

		return run.sendAll(ctx)
	})

	return cmd
}

type sendRun struct {
	*apiCommand
	sendFlags
	files    []string
	patience *remote.Patience // shared by all posts
	progress *progressReport

	mu    sync.Mutex
	sent  []*sentFile // accepted files, in no particular order
	count sendCounts
	fatal error // the error that stopped the run; nil = none
}

// sentFile is the result of one file, and a line of the output with --json.
type sentFile struct {
	File      string           `json:"file"`
	ID        string           `json:"id,omitempty"`
	Stage     weir.Stage       `json:"stage,omitempty"`
	Key       *string          `json:"key,omitempty"`
	Duplicate *bool            `json:"duplicate,omitempty"`
	Error     string           `json:"error,omitempty"`
	Status    int              `json:"status,omitempty"`
	Problems  []remote.Problem `json:"problems,omitempty"`
	reported  bool             // reportFile was called
}

// sendCounts has the numbers of the summary.
type sendCounts struct {
	Files      int `json:"files"`
	Accepted   int `json:"accepted"`   // files with a new message
	Duplicates int `json:"duplicates"` // files whose message Weir already had
	Refused    int `json:"refused"`
	Unread     int `json:"unread"`  // files that could not be read
	NotSent    int `json:"notSent"` // files without a result
	// with --wait: number of messages in each stage
	Stages map[weir.Stage]int `json:"stages,omitempty"`
}

func (s *sendRun) sendAll(ctx context.Context) error {
	s.count.Files, s.count.NotSent = len(s.files), len(s.files)
	s.progress = s.newProgress("sent", len(s.files))
	runParallel(ctx, s.gracePeriod, s.parallel, s.files, s.sendFile,
		func() bool { return s.stopCause() != nil })
	s.progress.finishReport()
	if s.wait.Duration > 0 && ctx.Err() == nil {
		s.awaitAllFinal(ctx)
	}

	for _, r := range s.sent {
		s.reportFile(r) // reports only files whose message was not final when the wait ended
	}

	return s.printSummary(ctx)
}

// runParallel calls the function "do" for each item, with at most "parallel" calls at a time. After
// ctx has ended, or isStopped has returned true, runParallel starts no further call. The context
// "finishing" ends later than ctx, by the grace period, so that calls in flight can finish.
func runParallel[T any](ctx context.Context, grace time.Duration, parallel int, items []T,
	do func(ctx, finishing context.Context, item T), isStopped func() bool) {
	finishing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })()
	var group errgroup.Group
	group.SetLimit(parallel)

	for _, item := range items {
		if ctx.Err() != nil || isStopped() {
			break
		}

		group.Go(func() error {
			if ctx.Err() == nil && !isStopped() { // the run can have stopped while group.Go waited
				do(ctx, finishing, item)
			}
			return nil
		})
	}

	_ = group.Wait() // every call returns nil
}

func (s *sendRun) sendFile(ctx, finishing context.Context, file string) {
	if s.stopCause() != nil {
		return
	}

	body, err := s.readContent(ctx, file)
	if ctx.Err() != nil {
		return
	}

	if err != nil {
		s.recordResult(sentFile{File: file, Error: err.Error()}, func(c *sendCounts) { c.Unread++ })
		return
	}

	var receipt remote.Answer[wire.Receipt]
	err = s.patience.Do(ctx, func(context.Context) error {
		if s.stopCause() != nil {
			return context.Canceled
		}
		var err error
		receipt, err = s.client.Send(finishing, body)
		return err
	})
	if err != nil {
		s.recordRefusal(file, err)
		return
	}

	r := receipt.Value
	result := sentFile{File: file, ID: r.ID, Stage: r.Stage, Key: &r.Key, Duplicate: &r.Duplicate}
	s.recordResult(result, func(c *sendCounts) {
		if r.Duplicate {
			c.Duplicates++
		} else {
			c.Accepted++
		}
	})
}

// recordRefusal records why a file was not accepted. If every other file would fail with the same
// error, recordRefusal stops the run instead.
func (s *sendRun) recordRefusal(file string, err error) {
	var e *remote.Error
	switch {
	case !errors.As(err, &e):
		return // the command was interrupted
	case e.Kind != remote.Refused || e.Status == 401 || e.Status == 403:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.fatal == nil {
			s.fatal = err
		}
		return
	}

	result := sentFile{File: file, Error: e.Message, Status: e.Status, Problems: e.Problems}
	s.recordResult(result, func(c *sendCounts) { c.Refused++ })
}

func (s *sendRun) stopCause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fatal
}

// recordResult counts a file's result. It also reports the file, unless the command has to wait for
// the file's message.
func (s *sendRun) recordResult(r sentFile, count func(*sendCounts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count(&s.count)
	s.count.NotSent--
	if r.ID != "" {
		s.sent = append(s.sent, &r)
	}

	if r.ID == "" || s.wait.Duration == 0 {
		s.reportFile(&r)
	}

	s.progress.addOne()
}

// reportRetry prints the error of a request that the command tries again. The parameter "left" is
// the time after which the command gives up if no request succeeds.
func (s *sendRun) reportRetry(err error, left time.Duration) {
	s.progress.printBetween(func() {
		fmt.Fprintf(s.stderr, "weir: %s; trying again for up to %s\n", sanitizeText(err.Error()),
			left.Round(time.Second))
	})
}

// reportFile prints a file's result at the first call, and nothing at later calls. Without --json
// it prints only errors, and final stages other than delivered and superseded.
func (s *sendRun) reportFile(r *sentFile) {
	if r.reported {
		return
	}

	r.reported = true
	switch {
	case s.json:
		// strings and numbers can always be encoded
		s.progress.printBetween(func() { _ = s.printJSON(r) })
	case r.Error != "":
		text := r.Error
		if r.Status != 0 {
			text = (&remote.Error{Status: r.Status, Message: r.Error, Problems: r.Problems}).Error()
		}

		s.progress.printBetween(func() {
			fmt.Fprintf(s.stderr, "weir: %s: %s\n", sanitizeText(r.File), sanitizeText(text))
		})

	case r.Stage.Final() && !isGoodEnd(r.Stage):
		s.progress.printBetween(func() {
			fmt.Fprintf(s.stderr, "weir: %s: %s is %s\n", sanitizeText(r.File),
				sanitizeText(r.ID), r.Stage)
		})
	}
}

// awaitAllFinal waits until all accepted messages are final, or until the time of --wait is over.
func (s *sendRun) awaitAllFinal(ctx context.Context) {
	s.count.Stages = map[weir.Stage]int{}
	s.progress = s.newProgress("final", len(s.sent))
	until := time.Now().Add(s.wait.Duration)
	runParallel(ctx, s.gracePeriod, s.parallel, s.sent, func(ctx, _ context.Context, r *sentFile) {
		m, err := s.awaitFinal(ctx, r.ID, time.Until(until))
		s.mu.Lock()
		defer s.mu.Unlock()

		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.fatal = cmp.Or(s.fatal, err)
			return
		}

		r.Stage = m.Value.Stage
		s.count.Stages[r.Stage]++
		s.reportFile(r)
		s.progress.addOne()
	}, func() bool { return s.stopCause() != nil })

	s.progress.finishReport()
}

// printSummary prints the summary, and returns the command's error.
func (s *sendRun) printSummary(ctx context.Context) error {
	if s.json {
		if err := s.printJSON(map[string]sendCounts{"summary": s.count}); err != nil {
			return err
		}
	} else {
		s.printSent()
		s.printLine("%s", s.count)
	}

	switch n := s.count; {
	case s.fatal != nil:
		return s.fatal
	case ctx.Err() != nil:
		return errors.New("interrupted; send the same files again: Weir stores no accepted message twice")
	case n.Refused > 0:
		return asFailure(&remote.Error{Kind: remote.Refused}, true)
	case n.Unread > 0, n.NotSent > 0,
		n.Stages[weir.Dead]+n.Stages[weir.Discarded]+n.Stages[weir.Cancelled] > 0:
		return asFailure(errors.New("not all files were delivered"), true)
	}

	for stage := range s.count.Stages {
		if !stage.Final() {
			return errors.New("the time for waiting is over")
		}
	}

	return nil
}

const maxListed = 10

// printSent lists the accepted files in the order of s.files. If there are more than maxListed,
// printSent lists none.
func (s *sendRun) printSent() {
	if len(s.sent) == 0 || len(s.sent) > maxListed {
		return
	}

	slices.SortStableFunc(s.sent, func(a, b *sentFile) int {
		return slices.Index(s.files, a.File) - slices.Index(s.files, b.File)
	})
	rows := [][]string{{"ID", "STAGE", "KEY", "FILE"}}
	for _, r := range s.sent {
		rows = append(rows, []string{r.ID, string(r.Stage), *r.Key, r.File})
	}

	s.printTable(rows)
}

// String returns the numbers in one line.
func (c sendCounts) String() string {
	parts := []string{fmt.Sprintf("%d accepted", c.Accepted)}
	for _, p := range []struct {
		n    int
		text string
	}{{c.Duplicates, "sent before"}, {c.Refused, "refused"}, {c.Unread, "not readable"},
		{c.NotSent, "not sent"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.text))
		}
	}

	text := formatCount(c.Files, "file") + ": " + strings.Join(parts, ", ")
	if c.Stages == nil {
		return text
	}

	return text + "; " + c.describeStages()
}

// describeStages returns a text such as "3 delivered, 1 dead".
func (c sendCounts) describeStages() string {
	var stages []string
	for _, stage := range []weir.Stage{weir.Delivered, weir.Superseded, weir.Dead, weir.Discarded,
		weir.Cancelled, weir.Retrying, weir.Queued, weir.Scheduled} {
		if n := c.Stages[stage]; n > 0 {
			stages = append(stages, fmt.Sprintf("%d %s", n, stage))
		}
	}

	return strings.Join(stages, ", ")
}
