package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/weir"
)

// TestBatches simulates runs in which instances append the parts of batches, as internal/batch
// does: many parts with one call, and after a failure or a crash the same parts again, in another
// process. Posts go to the same lanes meanwhile. Rule: when a part becomes durable, all earlier
// parts of its key are durable, and each part becomes one message.

// batching has the numbers of batches and of parts of each batch. The zero value means that there
// are no batches.
type batching struct{ batches, parts int }

const (
	partKeys = 3 // number of keys of a batch
	// partsAtOnce is the number of parts that one call appends. They need several transactions.
	partsAtOnce = 120
	// filingPatience is the time for which a process waits for the append of some parts.
	filingPatience = 15 * time.Second
)

func drawBatches(d *dice) settings {
	s := settings{
		instances: 1 + d.drawBelow("instances", 3), lanes: 1 + d.drawBelow("lanes", 2),
		messages: 10 + d.drawBelow("messages", 20), keys: 2 + d.drawBelow("keys", 6), attempts: 3,
		lease: 15 * time.Second, settle: d.drawBetween("settle", 5*time.Second, 8*time.Second),
		timeout: 5 * time.Second,
		backoff: drain.Backoff{Min: 100 * time.Millisecond, Max: 2 * time.Second},
		faults:  []float64{0.01, 0.03, 0.1}[d.drawBelow("faults", 3)], cmsFaults: 0.05, swift: true,
		trouble: d.drawBetween("trouble", 20*time.Second, 60*time.Second), bad: [2]int{-1, -1},
		refusedRow: -1,
		crashes:    d.drawBelow("crashes", 3), standstills: d.drawBelow("pauses", 2),
		cuts:  d.drawBelow("cuts", 3),
		stops: d.drawBelow("stops", 2), traps: d.drawBelow("traps", 3),
	}

	s.batching = batching{1 + d.drawBelow("batches", 3), 20 + d.drawBelow("parts", 200)}
	if d.drawChance("large bodies", 0.3) {
		s.large = 0.05
	}

	return s
}

// part is a part of a batch.
type part struct {
	*submission
	batch, n int // the number of the batch, and that of the part, both from 0
}

// postBatches lets instances file batches at drawn times.
func (w *world) postBatches(ctx context.Context) {
	for batch := range w.batching.batches {
		var parts []part
		for n := range w.batching.parts {
			key := fmt.Sprintf("batch%d-%d", batch, w.dice.drawBelow("part", partKeys))
			number := w.messages + batch*w.batching.parts + n
			s := &submission{number: number, key: key, idem: fmt.Sprint("batch-", batch, "-", n),
				message: weir.Message{Contract: "article", Key: key, ContentType: "application/xml",
					Body: w.newBody(number), Batch: fmt.Sprint(batch), BatchPart: n + 1}}
			parts = append(parts, part{s, batch, n})
			w.check.expectPart(s)
		}

		start := w.dice.drawBetween("batch", 0, w.trouble)
		w.upstream.Go(func() {
			time.Sleep(start)
			w.fileBatch(ctx, parts)
		})
	}
}

// fileBatch files the parts of a batch. A process that fails is followed by another one, which
// begins with the same parts.
func (w *world) fileBatch(ctx context.Context, parts []part) {
	name := fmt.Sprint("batch ", parts[0].batch)
	for tries := 0; len(parts) > 0; {
		some := parts[:min(partsAtOnce, len(parts))]
		err := w.appendParts(ctx, name, some)
		if err == nil {
			parts = parts[len(some):]
			continue
		}

		w.trace.addLine("%s, from part %d: %v", name, some[0].n, err)

		if tries++; tries > 200 {
			w.check.reportViolation("parts", "%s is not filed from part %d on: %v", name,
				some[0].n, err)
			return
		}

		time.Sleep(w.dice.drawBetween(name+" again", 200*time.Millisecond, 3*time.Second))
	}
}

// appendParts lets an instance append some parts.
func (w *world) appendParts(ctx context.Context, name string, parts []part) error {
	p := w.pickReceiver(name).currentProcess()
	drafts := make([]lane.Draft, len(parts))
	for i, one := range parts {
		drafts[i] = lane.Draft{Message: one.message, IdempotencyKey: one.idem}
	}

	receipts, err := askWithin(ctx, p, name, filingPatience,
		func(ctx context.Context) ([]lane.Receipt, error) {
			receipts, errs := p.appends.AppendInOrder(ctx, drafts)
			for _, r := range receipts {
				if !r.Message.ID.IsZero() && p.awaitRunning(name) {
					p.drainer.WakeOffered(r.Message.ID.Lane)
				}
			}
			return receipts, errors.Join(errs...)
		})
	if err != nil {
		return err
	}

	for i, r := range receipts {
		w.check.noteAcknowledged(parts[i].submission, r)
		p.bell.EnqueueAsync(r.Message.ID.Lane)
	}

	return nil
}

// filedParts has, by batch and key, the numbers of the parts that are expected next.
type filedParts map[string][]int

func partsOf(batch, key string) string { return batch + " " + key }

// expectPart adds the submission of a part. The model of histories has no posts of many messages.
func (c *checker) expectPart(s *submission) {
	c.expectSubmission(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parts == nil {
		c.parts = filedParts{}
	}

	of := partsOf(s.message.Batch, s.key)
	c.parts[of] = append(c.parts[of], s.message.BatchPart)
	c.history.Exclude(s.key, "parts of a batch")
}

// checkPart checks that a part follows the earlier parts of its key.
func (c *checker) checkPart(f *filed, batch string, number int) {
	left := c.parts[partsOf(batch, f.key)]
	if len(left) == 0 || left[0] != number {
		c.addViolation("parts",
			"part %d of batch %s was filed as seq %d of lane %d, where the parts %v of its key %s "+
				"are missing", number, batch, f.id.Seq, f.id.Lane, left, f.key)
		return
	}

	c.parts[partsOf(batch, f.key)] = left[1:]
	c.counts.Parts++
}

// checkAllParts checks that no part is missing at the end of a run.
func (c *checker) checkAllParts() {
	for of, left := range c.parts {
		if len(left) > 0 {
			c.addViolation("parts",
				"the parts %v of batch and key %s are missing in the end", left, of)
		}
	}
}

// TestBatches runs 30 seeds with batches, from seed 1 on. The environment variables BATCHES and
// BATCHES_FROM change the number and the first seed.
func TestBatches(t *testing.T) {
	if sum := runWorlds(t, "BATCHES", 30, drawBatches); sum.Parts == 0 {
		t.Error("no part was filed, want some")
	}
}

func TestMutants_AreCaughtInWorldsOfBatches(t *testing.T) {
	catchMutants(t, mutantsOfBatches, "TestBatches", "BATCHES")
}
