package lists

import (
	"context"
	"time"

	"weir/internal/lane/rows"
	"weir/internal/storage"
	"weir/internal/weir"
)

// MessageState is the part of a message's state that ReadStates reads.
type MessageState struct {
	Stage      weir.Stage // "" = retention has removed the message
	FinishedAt time.Time  // zero = the stage is not final
	Refused    bool       // the holder has refused the last request for a replay
}

// statesPage is the largest number of rows that one query of ReadStates reads. The query also reads
// the rows between two wanted rows, because extra rows cost less than a further query.
const statesPage = 200

var stateColumns = rows.Names(rows.Stage, rows.FinishedAt, rows.ReplayRefused)

// ReadStates returns the states of the messages with the sequence numbers seqs, which must be
// ascending. Call it only for messages that were dead at some time. For a delivered message that
// never was dead, ReadStates can return the stage queued: the delivery can be recorded in a packed
// row, and ReadStates reads no packed rows.
func (l Reader) ReadStates(ctx context.Context, number int, seqs []int64) ([]MessageState, error) {
	states := make([]MessageState, len(seqs))
	for i := 0; i < len(seqs); {
		page, err := l.Store.Table.Range(ctx, storage.Query{Partition: l.Store.Partition(number),
			From:  rows.MessageKey(seqs[i]),
			To:    rows.MessageKey(seqs[len(seqs)-1] + 1),
			Limit: statesPage, Columns: stateColumns})
		if err != nil {
			return nil, err
		}

		for _, r := range page.Rows {
			seq, isWhole := l.Store.SeqOf(number, rows.MessagePrefix, r)
			if !isWhole {
				continue
			}

			for i < len(seqs) && seqs[i] < seq {
				i++
			}

			if i < len(seqs) && seqs[i] == seq {
				v := r.Values
				states[i] = MessageState{weir.Stage(rows.Stage.Of(v)), rows.FinishedAt.Of(v),
					rows.ReplayRefused.Of(v) != ""}
				i++
			}
		}

		if !page.More {
			break
		}
	}

	return states, nil
}
