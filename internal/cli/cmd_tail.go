package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"weir/internal/clock"
	"weir/internal/remote"
	"weir/internal/weir"
	"weir/internal/wire"
)

const tailHelp = `Prints messages when they are accepted and when their stage changes, until Ctrl-C. The command reads
the newest 100 matching messages, so changes of older ones do not show. With --json each line is
the message as the API lists it. Each read costs Weir a few requests to storage for each lane.`

const (
	tailPage  = 100 // messages in a page
	tailPages = 10  // largest number of pages that readNews reads
	// if more messages are known, readNews forgets all except those that it just read
	tailKnown = 20000
)

type tailFlags struct {
	stage, key string
	lane       int
	first      int
	interval   time.Duration
}

func newTailCommand(s *console) *cobra.Command {
	a, f := &apiCommand{console: s}, tailFlags{}
	cmd := &cobra.Command{Use: "tail", Short: "Show messages as they come and change",
		Long: tailHelp, Args: cobra.NoArgs}
	a.addFlags(cmd)
	cmd.Flags().StringVar(&f.stage, "stage", "", "only messages of this stage")
	cmd.Flags().StringVar(&f.key, "key", "", "only messages of this ordering key")
	cmd.Flags().IntVar(&f.lane, "lane", -1, "only messages of this lane")
	cmd.Flags().IntVarP(&f.first, "lines", "n", 10, "messages to begin with, up to 100")
	addDurationFlag(cmd.Flags(), &f.interval, "interval", 2*time.Second, "time between two reads")
	cmd.RunE = a.wrapRun(func(ctx context.Context, _ []string) error {
		switch {
		case f.first < 0 || f.first > tailPage:
			return &usageError{"--lines must be 0 to 100"}
		case f.interval < 100*time.Millisecond:
			return &usageError{"--interval must be 100ms or more"}
		}

		query, err := buildTailQuery(cmd, f)
		if err != nil {
			return err
		}

		return (&tailRun{apiCommand: a, query: query, known: map[string]weir.Stage{}}).followMessages(ctx, f)
	})

	return cmd
}

func buildTailQuery(cmd *cobra.Command, f tailFlags) (url.Values, error) {
	query := url.Values{"limit": {strconv.Itoa(tailPage)}}
	if f.stage != "" {
		query.Set("stage", f.stage)
	}

	key, err := readKeyFlag(cmd, f.key)
	if key != nil {
		query.Set("key", *key)
	}

	if cmd.Flags().Changed("lane") {
		query.Set("lane", strconv.Itoa(f.lane))
	}

	return query, err
}

type tailRun struct {
	*apiCommand
	query url.Values
	known map[string]weir.Stage // last seen stage of each message, by message id
}

// followMessages prints new messages and changes of stages until ctx ends, and then returns nil.
// Any error of the first read ends followMessages. After a later error, followMessages reads again
// if Weir is unavailable.
func (t *tailRun) followMessages(ctx context.Context, f tailFlags) error {
	for first := true; ; {
		news, err := t.readNews(ctx, first)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (first || remote.KindOf(err) != remote.Unavailable):
			return err
		case err != nil:
			fmt.Fprintln(t.stderr, "weir:", sanitizeText(err.Error()))
		case first:
			news = news[max(0, len(news)-f.first):]
		}

		for _, line := range news {
			t.printMessage(line)
		}

		first = false
		if !clock.Sleep(ctx, max(f.interval, requestedPause(err))) {
			return nil
		}
	}
}

// requestedPause returns the Retry-After of an error; 0 = none.
func requestedPause(err error) time.Duration {
	var e *remote.Error
	if errors.As(err, &e) {
		return e.RetryAfter
	}
	return 0
}

// readNews returns the messages that are new or have a changed stage, the oldest first. The first
// call reads only one page. A later call reads pages until a page has a known message. It reads at
// most tailPages pages.
func (t *tailRun) readNews(ctx context.Context, first bool) ([]json.RawMessage, error) {
	query, seen := t.query, map[string]weir.Stage{}
	var news []json.RawMessage
	for range tailPages {
		page, err := t.client.Find(ctx, query)
		if t.beginAnew(err) {
			query, news = t.query, nil
			clear(seen)
			continue
		}

		if err != nil {
			return nil, err
		}

		hasKnown := t.filterNews(page.Value.Messages, seen, &news)
		if first || hasKnown || page.Value.Continue == "" {
			break
		}

		next := url.Values{"continue": {page.Value.Continue}}
		for name, value := range t.query {
			next[name] = value
		}

		query = next
	}

	if len(t.known) > tailKnown {
		clear(t.known)
	}

	for id, stage := range seen {
		t.known[id] = stage
	}

	slices.Reverse(news)

	return news, nil
}

// filterNews adds all messages of a page to "seen". It adds messages that are new or have a changed
// stage to "news". It reports whether the page has a known message. The pages after such a page
// have only older messages, and no new message.
func (t *tailRun) filterNews(page []json.RawMessage, seen map[string]weir.Stage,
	news *[]json.RawMessage) (hasKnown bool) {
	for _, line := range page {
		var m wire.Message
		if json.Unmarshal(line, &m) != nil {
			continue
		}

		stage, known := t.known[m.ID]
		hasKnown = hasKnown || known
		if _, twice := seen[m.ID]; !twice && (!known || stage != m.Stage) {
			*news = append(*news, line)
		}

		seen[m.ID] = m.Stage
	}

	return hasKnown
}

func (t *tailRun) printMessage(line json.RawMessage) {
	var m wire.Message
	if t.json || json.Unmarshal(line, &m) != nil {
		t.printLine("%s", line)
		return
	}

	at := m.AcceptedAt
	if !m.FinishedAt.IsZero() {
		at = m.FinishedAt
	}

	text := ""
	if m.Stage == weir.Dead || m.Stage == weir.Retrying {
		text = afterColon(m.LastError)
	}

	t.printLine("%s  %-10s  %s  lane %d  %s%s", formatTime(at), m.Stage, sanitizeText(m.ID), m.Lane,
		sanitizeText(m.Key), text)
}
