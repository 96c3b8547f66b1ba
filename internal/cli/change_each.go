package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"weir/internal/remote"
)

// changeEach calls send for one id after the other. It prints each answer: with --json the JSON,
// and otherwise the sentence. It also prints each error, and returns the first error. If Weir is
// unavailable, changeEach stops.
func (a *apiCommand) changeEach(ctx context.Context, ids []string,
	send func(id string) (answer json.RawMessage, sentence string, err error),
) error {
	var first error
	for _, id := range ids {
		answer, sentence, err := send(id)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			fmt.Fprintf(a.stderr, "weir: %s: %s\n", sanitizeText(id), sanitizeText(err.Error()))
			if first == nil {
				first = err
			}

			if remote.KindOf(err) == remote.Unavailable {
				return asFailure(first, true)
			}

		case a.json:
			a.printLine("%s", answer)
		default:
			a.printLine("%s", sanitizeText(sentence))
		}
	}

	return asFailure(first, true)
}
