package lane

import (
	"encoding/json"
	"time"
)

// MissingContract is a contract that the settings of a lane's last holder lacked, and for which
// messages wait.
type MissingContract struct {
	Contract string    `json:"contract"` // the name with which the messages are stored
	Since    time.Time `json:"since"`    // time at which a holder first missed the contract
	// number of messages that wait, with those behind them in the queues of keys
	Messages int64 `json:"messages"`
	Keys     int64 `json:"keys"` // number of ordering keys of these messages
}

// maxMissing bounds the contracts in tail, because each commit writes tail. Messages of further
// contracts wait, too. If only such a contract comes back, the next session delivers its messages.
const maxMissing = 50

// packMissing returns the value of rows.Missing; "" = no contract is missing.
func packMissing(missing []MissingContract) string {
	if len(missing) == 0 {
		return ""
	}

	data, err := json.Marshal(missing[:min(len(missing), maxMissing)])
	if err != nil {
		return "" // this cannot happen: each time comes from storage or from a clock
	}

	return string(data)
}

// unpackMissing returns the contracts in a value of rows.Missing. It returns nil for a value that
// it cannot read: otherwise no process could read the lane's control rows.
func unpackMissing(packed string) (missing []MissingContract) {
	if packed == "" || json.Unmarshal([]byte(packed), &missing) != nil {
		return nil
	}
	return missing
}
