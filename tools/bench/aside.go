package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"weir/internal/democms"
	"weir/internal/weir"
)

const (
	residentLimit = 256       // MiB, for a handler on an instance of 512 MiB
	largeBody     = 200 << 10 // bytes
	asideLimit    = 10 * time.Minute
	// asideSpan is the time in which the holder must move asideLeast messages from the log into the
	// block of their key. The scenario does not wait for all messages: that can take a quarter of
	// an hour, because Azurite searches the whole partition for each row of a transaction. After
	// the first few hundred messages, the handler's memory grows no more.
	asideSpan, asideLeast = time.Minute, 500
	// asidePause is the time between two reads of the lane's state. It is long, because Azurite
	// searches the whole table at each read.
	asidePause = 3 * time.Second
)

// runAside measures the handler's memory in two cases: many messages wait because their key is
// blocked, and many large messages are due at the same time.
func runAside(ctx context.Context, b *bench) ([]result, error) {
	behind, err := measureBehindBlocked(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("behind a blocked key: %w", err)
	}

	large, err := measureLargeDue(ctx, b)
	if err != nil {
		return []result{behind}, fmt.Errorf("large bodies: %w", err)
	}

	return []result{behind, large}, nil
}

// measureBehindBlocked fills a lane with messages of one key. The first message fails, and its
// retry is due only after the measurement. So the holder moves the other messages into the block of
// the key.
func measureBehindBlocked(ctx context.Context, b *bench) (result, error) {
	n := b.sizes.crowds.aside.behind
	r, err := b.newRig(ctx, rigOptions{retryWait: 2 * asideLimit,
		beforeHost: func(ctx context.Context, r *rig) error {
			r.cms.SetFaults(democms.Faults{FailUnder: "/blocked/"})
			return fillAtOnce(ctx, r.store, makeMessages("blocked", n, 1), 200, nil)
		}})
	if err != nil {
		return result{}, err
	}
	defer r.shutDown()
	began, passed := time.Now(), int64(0)
	_ = waitUntil(ctx, asideSpan, asidePause, "the holder has passed over all", func() bool {
		c, err := r.store.ReadControl(ctx, 0)
		passed = max(passed, c.Tail.Cursor-1)
		return err == nil && c.Tail.Cursor >= c.Head.Next
	})

	took := time.Since(began)
	if passed < min(asideLeast, int64(n)) {
		return result{}, errors.Join(ctx.Err(),
			fmt.Errorf("the holder put %d of %d messages aside in %s", passed, n, took))
	}

	peak, err := peakMemory(r.host.Status().Instances[0].PID)

	return newRow(fmt.Sprintf("memory, %d messages behind a blocked key: peak resident set", n),
		"MiB", peak).limitValue(residentLimit).
		withNote("%d put aside in %.1f s", passed, took.Seconds()), err
}

// measureLargeDue measures the handler's memory if n messages with large bodies have the same due
// time.
func measureLargeDue(ctx context.Context, b *bench) (result, error) {
	n, moment := b.sizes.crowds.aside.large, time.Now().Add(b.sizes.crowds.aside.lead)
	r, err := b.newRig(ctx, rigOptions{latency: dueLatency,
		beforeHost: func(ctx context.Context, r *rig) error {
			return fillAtOnce(ctx, r.store, makeMessages("large", n, n), 16,
				func(_ int, m *weir.Message) string {
					m.DueAt, m.Body = moment, []byte(largeArticle(m.Key, largeBody))
					return ""
				})
		}})
	if err != nil {
		return result{}, err
	}
	defer r.shutDown()
	if late := time.Since(moment); late > 0 {
		return result{}, fmt.Errorf("the handler was ready %s after the messages were due", late)
	}

	if err := r.awaitCondition(ctx, asideLimit, "all are written",
		func() bool { return r.cms.Stats().Writes >= n }); err != nil {
		return result{}, err
	}

	took := time.Since(moment)
	if err := errors.Join(r.awaitRest(ctx), r.checkRecord(n)); err != nil {
		return result{}, err
	}

	peak, err := peakMemory(r.host.Status().Instances[0].PID)

	return newRow(fmt.Sprintf("memory, %d messages of %d KiB due at one moment: peak resident set",
		n, largeBody>>10), "MiB", peak).limitValue(residentLimit).
		withNote("all written %.1f s after the moment", took.Seconds()), err
}

// largeArticle returns an XML message of about size bytes. Its text is random, so that compression
// makes the message only a quarter smaller.
func largeArticle(path string, size int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	var text strings.Builder
	fmt.Fprintf(&text, `<article path="%s" version="1"><title>Large</title><text>`, path)
	for text.Len() < size {
		text.WriteByte(letters[rand.N(len(letters))])
	}

	text.WriteString("</text></article>")

	return text.String()
}
