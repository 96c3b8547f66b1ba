package lists

import (
	"context"
	"time"

	"weir/internal/lane"
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

// statesPage is the largest number of rows that one query of ReadStates reads. The query also reads the rows between
// two wanted rows, because they cost less than another query.
const statesPage = 200

var stateColumns = rows.Names(rows.Stage, rows.DiscardedAt, rows.FinishedAt, rows.ReplayRefused)

// ReadStates returns the states of messages of a lane that were dead at some time. The sequence numbers must ascend.
// ReadStates must not be called for other messages: a message that was never dead may be returned as queued although it
// was delivered.
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
			seq, err := rows.SeqOfMessage(r.Key)
			if err != nil {
				return nil, err
			}
			for i < len(seqs) && seqs[i] < seq {
				i++
			}
			if i < len(seqs) && seqs[i] == seq {
				v := r.Values
				states[i] = MessageState{lane.StageFrom(v), rows.FinishedAt.Of(v),
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
