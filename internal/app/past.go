package app

import (
	"context"
	"time"

	"weir/internal/history"
	"weir/internal/wire"
)

// pastOf reads the history of lanes for the stories of messages.
type pastOf struct{ *history.Keeper }

// maxUncountedAge is the age of a message above which its story does not show the pauses of its
// lane, because the read of many hours takes long.
const maxUncountedAge = 24 * time.Hour

// Uncounted returns the attempts of a lane between two times that counted for no message.
func (p pastOf) Uncounted(ctx context.Context, lane int, from,
	to time.Time) (wire.Uncounted, error) {
	from, to = from.UTC().Truncate(time.Minute), to.UTC()
	span := time.Since(from)
	if span > maxUncountedAge {
		return wire.Uncounted{}, nil
	}

	minutes, err := p.Series(ctx, span.Truncate(time.Minute)+time.Minute, time.Minute, lane)
	var out wire.Uncounted
	for i := range minutes {
		if at := minutes[i].At; at.Before(from) || at.After(to) || minutes[i].Lanes[lane] == nil {
			continue
		}
		if l := minutes[i].Lanes[lane]; l.Uncounted > 0 {
			out.Attempts, out.Status = out.Attempts+l.Uncounted, l.UncountedStatus
		}
	}

	return out, err
}
