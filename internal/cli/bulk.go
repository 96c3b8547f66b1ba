package cli

import (
	"context"
	"fmt"
	"time"

	"weir/internal/remote"
	"weir/internal/wire"
)

// bulkChange is what `weir cancel` and `weir discard` do with all messages that a filter selects:
// count them, ask, and change them.
type bulkChange[F wire.WaitingFilter | wire.DiscardFilter] struct {
	name    string // of the change, for errors
	verb    string // with kind and suffix the question: "Cancel 3 messages?"
	kind    string
	suffix  string
	wouldBe string // the participle in the result of a count
	done    string // the field of the result with --json
	send    func(context.Context, wire.BulkRequest[F]) (remote.Answer[wire.BulkAnswer], error)
	// endAt returns the filter with an end, so that messages that come after the count are left
	// out.
	endAt func(time.Time) F

	isWithoutQuestion, isDryRun bool
	reason                      string
}

func (c bulkChange[F]) run(ctx context.Context, a *apiCommand, filter F) error {
	counted, err := c.sendAll(ctx, a, wire.BulkRequest[F]{Filter: filter, DryRun: true})
	if err != nil {
		return err
	}
	if c.isDryRun || counted.Selected == 0 {
		return a.printBulk(counted, "selected", "%s would be "+c.wouldBe+".")
	}

	if !c.isWithoutQuestion {
		question := fmt.Sprintf("%s %s%s?", c.verb, formatCount(counted.Selected, c.kind), c.suffix)
		if yes, err := a.askConfirmation(ctx, question); err != nil || !yes {
			return err
		}
	}

	done, err := c.sendAll(ctx, a,
		wire.BulkRequest[F]{Filter: c.endAt(counted.To), Reason: c.reason})
	if err != nil {
		return err
	}

	text := fmt.Sprintf("%%s: %d requested, %d came too late.", done.Asked, done.TooLate)
	if done.Cancelled != nil {
		text = fmt.Sprintf("%%s: %d cancelled, %d requested, %d came too late.", *done.Cancelled,
			done.Asked, done.TooLate)
	}

	return a.printBulk(done, c.done, text)
}

// sendAll repeats a request until an answer is complete, each time with the field Continue of the
// last answer. It returns the sum of the answers. If Continue is outdated, it begins anew: a count
// counts again, and a change finds the messages that are left.
func (c bulkChange[F]) sendAll(ctx context.Context, a *apiCommand,
	r wire.BulkRequest[F]) (sum wire.BulkAnswer, err error) {
	patience := a.newPatience(unavailableLimit)
	for {
		var part remote.Answer[wire.BulkAnswer]
		err := patience.Do(ctx, func(ctx context.Context) (err error) {
			part, err = c.send(ctx, r)
			return err
		})
		if r.Continue != "" && a.beginAnew(err) {
			r.Continue = ""
			if r.DryRun {
				sum = wire.BulkAnswer{}
			}
			continue
		}

		if err != nil {
			return sum, err
		}

		sum.Add(part.Value)

		if sum.Complete {
			sum.Continue = ""
			return sum, nil
		}

		if r.Continue == sum.Continue {
			return sum, fmt.Errorf("the %s makes no progress after %s; call the command again",
				c.name, formatCount(sum.Selected, "message"))
		}

		r.Continue = sum.Continue
	}
}

// printBulk prints the numbers of a change: as JSON in a field with the given name, or as text. The
// parameter "format" must have one %s, for the number of selected messages.
func (a *apiCommand) printBulk(n wire.BulkAnswer, name, format string) error {
	if a.json {
		return a.printJSON(map[string]any{name: n})
	}
	a.printLine(format, formatCount(n.Selected, "message"))
	return nil
}
