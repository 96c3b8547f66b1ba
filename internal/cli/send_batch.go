package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"weir/internal/clock"
	"weir/internal/remote"
	"weir/internal/weir"
	"weir/internal/wire"
)

const (
	// batchPollInterval is the shortest pause between two reads of a batch's progress.
	batchPollInterval = time.Second
	// pollShare makes the pause after a slow read pollShare times as long as the read. Weir takes
	// long to answer if it reads thousands of rows, so frequent reads would be a load.
	pollShare = 4
)

// sendBatches sends the files as batches, one after the other, and returns the last error. It sends
// no further file after an error for which isFatal returns true.
func (s *sendRun) sendBatches(ctx context.Context) error {
	var failed error
	for _, file := range s.files {
		err := s.sendBatch(ctx, file)
		if ctx.Err() != nil {
			return errors.New("interrupted; accepted batches go on without the command")
		}

		if err != nil {
			fmt.Fprintf(s.stderr, "weir: %s: %s\n", sanitizeText(file), sanitizeText(err.Error()))
			if failed = asFailure(err, true); isFatal(err) {
				return failed
			}
		}
	}

	return failed
}

// isFatal reports whether every other file would also fail with this error.
func isFatal(err error) bool {
	var e *remote.Error
	return errors.As(err, &e) && (e.Kind != remote.Refused || e.Status == 401 || e.Status == 403)
}

func (s *sendRun) sendBatch(ctx context.Context, file string) error {
	body, err := s.readContent(ctx, file)
	if err != nil {
		return err
	}

	contentType := "application/xml"
	if strings.EqualFold(filepath.Ext(file), ".zip") {
		contentType = "application/zip"
	}

	s.progress = s.newProgress("parts filed", -1)
	defer s.progress.finishReport()
	var posted remote.Answer[wire.Batch]
	err = s.patience.Do(ctx, func(ctx context.Context) (err error) {
		posted, err = s.client.SendBatch(ctx, contentType, body, wire.BatchMode(s.mode), s.split)
		return err
	})
	if err != nil {
		return err
	}

	last, err := s.followBatch(ctx, posted.Value.ID)
	if err != nil {
		return err
	}

	return s.reportBatch(file, last)
}

// followBatch reads a batch repeatedly until the batch is final, and returns the last answer. With
// --wait it goes on until all messages of the batch are final, or until the time of --wait is over.
func (s *sendRun) followBatch(ctx context.Context, id string) (last remote.Answer[wire.Batch],
	err error) {
	until := time.Time{}
	for {
		began := time.Now()
		err := s.patience.Do(ctx, func(ctx context.Context) (err error) {
			last, err = s.client.Batch(ctx, id)
			return err
		})
		if err != nil {
			return last, err
		}

		b := &last.Value
		s.progress.setCount(b.Filed, b.Parts)

		switch now := time.Now(); {
		case !b.IsFinal():
		case s.wait.Duration == 0 || countWaiting(b.Stages) == 0:
			return last, nil
		case until.IsZero():
			until = now.Add(s.wait.Duration)
		case now.After(until):
			return last, nil
		}

		if !clock.Sleep(ctx, max(batchPollInterval, pollShare*time.Since(began))) {
			return last, ctx.Err()
		}
	}
}

func countWaiting(stages map[weir.Stage]int) (n int) {
	return stages[weir.Scheduled] + stages[weir.Queued] + stages[weir.Retrying]
}

// reportBatch prints the result of a batch, and returns an error unless the batch succeeded.
func (s *sendRun) reportBatch(file string, last remote.Answer[wire.Batch]) error {
	b := &last.Value
	s.progress.printBetween(func() {
		if !s.json {
			s.printBatch(file, b)
			return
		}

		_ = s.printJSON(struct { // texts and numbers can always be encoded
			File string `json:"file"`
			wire.Batch
		}{file, *b})
	})

	switch {
	case b.State == wire.BatchRejected:
		return &remote.Error{Kind: remote.Refused, Message: "the batch is rejected: " + b.Reason}
	case b.State == wire.BatchCancelled:
		return errors.New("the batch was cancelled")
	case b.Reason != "":
		return errors.New("the batch was filed in part: " + b.Reason)
	case s.wait.Duration > 0 && hasBadEnd(b.Stages):
		return errors.New("not all parts were delivered")
	case s.wait.Duration > 0 && countWaiting(b.Stages) > 0:
		return errors.New("the time for waiting is over")
	}

	return nil
}

// hasBadEnd reports whether any message has a final stage other than delivered and superseded.
func hasBadEnd(stages map[weir.Stage]int) bool {
	for stage, n := range stages {
		if n > 0 && stage.Final() && !isGoodEnd(stage) {
			return true
		}
	}
	return false
}

// printBatch prints the problems of a batch to stderr, and the numbers of its parts to stdout.
func (s *sendRun) printBatch(file string, b *wire.Batch) {
	for _, p := range b.Problems {
		place := fmt.Sprintf("part %d", p.Part)
		if p.File != "" {
			place += " in " + p.File
		}

		if p.Line > 0 {
			place += fmt.Sprintf(", line %d", p.Line)
		}

		refused := &remote.Error{Message: p.Message}
		for _, one := range p.Problems {
			refused.Problems = append(refused.Problems, remote.Problem(one))
		}

		fmt.Fprintf(s.stderr, "weir: %s: %s: %s\n", sanitizeText(file), sanitizeText(place),
			sanitizeText(refused.Error()))
	}

	text := fmt.Sprintf("%s: batch %s is %s; %d of %s filed", file, b.ID, b.State, b.Filed,
		formatCount(b.Parts, "part"))
	if b.Invalid > 0 {
		text += fmt.Sprintf(", %d invalid", b.Invalid)
	}

	counts := sendCounts{Stages: b.Stages}.describeStages()
	if counts != "" {
		text += "; " + counts
	}

	s.printLine("%s", sanitizeText(text))
}
