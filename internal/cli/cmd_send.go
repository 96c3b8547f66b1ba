package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/remote"
	"weir/internal/weir"
	"weir/internal/wire"
)

const sendHelp = `Sends files as messages, one each; - is standard input. A pattern that the console left as it
is ('*.xml') is resolved; directories are not. Each message goes under an idempotency key
made of its content: send the same files again after a break, and what was accepted before
is not filed twice.

Files go in the order given, but several at a time (-p): where two of them have the same
ordering key and their order matters, use -p 1. What cannot be accepted now (503, 429, no
connection) is sent again, until nothing has got through for --give-up.

With --json each file is a line {"file", "id", "stage", "key", "duplicate"} or {"file",
"error", "status", "problems"}, and the last line is {"summary"}. Ends with 4 when a file was
refused, with 1 when one could not be read or, with --wait, is dead or cancelled in the end.
Ctrl-C finishes the requests under way, and tells what was done.`

// sendFlags are the flags of send.
type sendFlags struct {
	parallel int
	giveUp   time.Duration
	wait     waitFlag
}

func (s *console) sendCommand() *cobra.Command {
	a, f := &apiCommand{console: s}, sendFlags{}
	cmd := &cobra.Command{Use: "send FILE…|-", Short: "Send files as messages", Long: sendHelp, Args: cobra.MinimumNArgs(1)}
	a.addFlags(cmd)
	cmd.Flags().IntVarP(&f.parallel, "parallel", "p", 4, "how many are sent at a time, 1 to 64")
	cmd.Flags().DurationVar(&f.giveUp, "give-up", 5*time.Minute, "stop when nothing has got through for so long; 0s tries each once")
	addWaitFlag(cmd, &f.wait, "wait until all are final")
	cmd.RunE = a.wrapRun(func(ctx context.Context, args []string) error {
		if f.parallel < 1 || f.parallel > 64 {
			return &usageError{fmt.Sprintf("--parallel is %d, and must be 1 to 64", f.parallel)}
		}
		if f.giveUp < 0 {
			return &usageError{"--give-up must be 0s or more"}
		}
		files, err := resolveFiles(args)
		if err != nil {
			return err
		}
		return (&sendRun{apiCommand: a, sendFlags: f, files: files, patience: a.newPatience(f.giveUp)}).sendAll(ctx)
	})
	return cmd
}

// sending is one run of send.
type sendRun struct {
	*apiCommand
	sendFlags
	files    []string
	patience *remote.Patience
	progress *progressReport

	mu    sync.Mutex
	sent  []*sentFile // accepted, in no order
	count sendCounts
	fatal error // why all was stopped
}

// sent is what came of a file.
type sentFile struct {
	File      string           `json:"file"`
	ID        string           `json:"id,omitempty"`
	Stage     weir.Stage       `json:"stage,omitempty"`
	Key       *string          `json:"key,omitempty"`
	Duplicate *bool            `json:"duplicate,omitempty"`
	Error     string           `json:"error,omitempty"`
	Status    int              `json:"status,omitempty"`
	Problems  []remote.Problem `json:"problems,omitempty"`
	told      bool
}

// sendCounts is the summary.
type sendCounts struct {
	Files      int                `json:"files"`
	Accepted   int                `json:"accepted"`
	Duplicates int                `json:"duplicates"` // were there already
	Refused    int                `json:"refused"`
	Unread     int                `json:"unread"`  // files that could not be read
	NotSent    int                `json:"notSent"` // or not known to have been accepted
	Stages     map[weir.Stage]int `json:"stages,omitempty"`
}

func (s *sendRun) sendAll(ctx context.Context) error {
	s.count.Files, s.count.NotSent = len(s.files), len(s.files)
	s.progress = s.newProgress("sent", len(s.files))
	runParallel(ctx, s.gracePeriod, s.parallel, s.files, s.sendFile, func() bool { return s.stopCause() != nil })
	s.progress.finish()
	if s.wait.Duration > 0 && ctx.Err() == nil {
		s.awaitAllFinal(ctx)
	}
	for _, r := range s.sent {
		s.reportFile(r) // where it was stopped before its end was known
	}
	return s.printSummary(ctx)
}

// runParallel does something with every item, several at a time, until ctx or stop ends it. What
// was begun is finished: it has grace for that.
func runParallel[T any](ctx context.Context, grace time.Duration, parallel int, items []T, do func(ctx, finishing context.Context, item T), stop func() bool) {
	finishing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })()
	queue := make(chan T)
	var wg sync.WaitGroup
	for range min(parallel, len(items)) {
		wg.Go(func() {
			for item := range queue {
				do(ctx, finishing, item)
			}
		})
	}
	for _, item := range items {
		if ctx.Err() != nil || stop() {
			break
		}
		select {
		case queue <- item:
		case <-ctx.Done():
		}
	}
	close(queue)
	wg.Wait()
}

// one sends a file.
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
	s.recordResult(sentFile{File: file, ID: r.ID, Stage: r.Stage, Key: &r.Key, Duplicate: &r.Duplicate}, func(c *sendCounts) {
		if r.Duplicate {
			c.Duplicates++
		} else {
			c.Accepted++
		}
	})
}

// recordRefusal takes in why a file was not accepted. What would be so for every file stops all.
func (s *sendRun) recordRefusal(file string, err error) {
	var e *remote.Error
	switch {
	case !errors.As(err, &e):
		return // interrupted
	case e.Kind != remote.Refused || e.Status == 401 || e.Status == 403:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.fatal == nil {
			s.fatal = err
		}
		return
	}
	s.recordResult(sentFile{File: file, Error: e.Message, Status: e.Status, Problems: e.Problems}, func(c *sendCounts) { c.Refused++ })
}

func (s *sendRun) stopCause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fatal
}

// recordResult sendCounts what came of a file, and tells it. What is to be waited for is told later.
func (s *sendRun) recordResult(r sentFile, counted func(*sendCounts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counted(&s.count)
	s.count.NotSent--
	if r.ID != "" {
		s.sent = append(s.sent, &r)
	}
	if r.ID == "" || s.wait.Duration == 0 {
		s.reportFile(&r)
	}
	s.progress.addOne()
}

// tell tells about a file, once: in JSON all, else what went wrong.
func (s *sendRun) reportFile(r *sentFile) {
	if r.told {
		return
	}
	r.told = true
	switch {
	case s.json:
		s.progress.printBetween(func() { _ = s.printJSON(r) }) // strings and numbers always encode
	case r.Error != "":
		text := r.Error
		if r.Status != 0 {
			text = (&remote.Error{Status: r.Status, Message: r.Error, Problems: r.Problems}).Error()
		}
		s.progress.printBetween(func() { fmt.Fprintf(s.stderr, "handler: %s: %s\n", sanitizeText(r.File), sanitizeText(text)) })
	case r.Stage.Final() && !isGoodEnd(r.Stage):
		s.progress.printBetween(func() {
			fmt.Fprintf(s.stderr, "handler: %s: %s is %s\n", sanitizeText(r.File), sanitizeText(r.ID), r.Stage)
		})
	}
}

// awaitAllFinal waits until all that was accepted is final.
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
	s.progress.finish()
}

// summary tells the end, and gives the error that the exit code is made of.
func (s *sendRun) printSummary(ctx context.Context) error {
	if s.json {
		if err := s.printJSON(map[string]sendCounts{"summary": s.count}); err != nil {
			return err
		}
	} else {
		s.printLine("%s", s.count)
	}
	switch n := s.count; {
	case s.fatal != nil:
		return s.fatal
	case ctx.Err() != nil:
		return errors.New("interrupted; send the same files again, and what was accepted is not filed twice")
	case n.Refused > 0:
		return asFailure(&remote.Error{Kind: remote.Refused}, true)
	case n.Unread > 0, n.NotSent > 0, n.Stages[weir.Dead]+n.Stages[weir.Cancelled] > 0:
		return asFailure(errors.New("not all"), true)
	}
	for stage := range s.count.Stages {
		if !stage.Final() {
			return errors.New("the time for waiting is over")
		}
	}
	return nil
}

// String says the summary in a line.
func (c sendCounts) String() string {
	parts := []string{fmt.Sprintf("%d accepted", c.Accepted)}
	for _, p := range []struct {
		n    int
		text string
	}{{c.Duplicates, "there already"}, {c.Refused, "refused"}, {c.Unread, "not readable"}, {c.NotSent, "not sent"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.text))
		}
	}
	text := formatCount(c.Files, "file") + ": " + strings.Join(parts, ", ")
	if c.Stages == nil {
		return text
	}
	var stages []string
	for _, stage := range []weir.Stage{weir.Delivered, weir.Superseded, weir.Dead, weir.Cancelled, weir.Retrying, weir.Queued, weir.Scheduled} {
		if n := c.Stages[stage]; n > 0 {
			stages = append(stages, fmt.Sprintf("%d %s", n, stage))
		}
	}
	return text + "; " + strings.Join(stages, ", ")
}
