package lane

import (
	"encoding/json"
	"time"
)

// Brake is a rejection by the CMS that has made messages of several keys dead, with no delivery of
// their contract between. While it is closed, further messages with this rejection wait.
type Brake struct {
	Contract    string    `json:"contract"`
	Fingerprint string    `json:"fingerprint"`         // as in the lists of errors
	CMSStatus   int       `json:"cmsStatus,omitempty"` // 0 = the request could not be built
	Reason      string    `json:"reason"`              // normalised; see weir.Fingerprint
	Since       time.Time `json:"since"`               // time at which it was closed
	// messages of the lane that wait, with those behind them
	Messages int64 `json:"messages"`
	Keys     int64 `json:"keys"` // number of ordering keys of these messages
}

// maxTailBrakes bounds the brakes in tail, because each commit writes tail.
const maxTailBrakes = 20

// packBrakes returns the value of rows.Brakes; "" = no brake is closed.
func packBrakes(brakes []Brake) string {
	if len(brakes) == 0 {
		return ""
	}

	data, err := json.Marshal(brakes[:min(len(brakes), maxTailBrakes)])
	if err != nil {
		return "" // this cannot happen: each time comes from storage or from a clock
	}

	return string(data)
}

// unpackBrakes returns the brakes in a value of rows.Brakes. It returns nil for a value that it
// cannot read: otherwise no process could read the lane's control rows.
func unpackBrakes(packed string) (brakes []Brake) {
	if packed == "" || json.Unmarshal([]byte(packed), &brakes) != nil {
		return nil
	}
	return brakes
}
