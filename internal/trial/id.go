package trial

import (
	"crypto/rand"
	"encoding/hex"
	"strings"

	"weir/internal/weir"
)

// NewID returns a message id for a trial. The id of a live trial is unique. Otherwise the CMS could
// take the trial for a repeat of an earlier trial.
func NewID(isLive bool) weir.ID {
	id := weir.ID{Epoch: 1, Seq: 1, Nonce: strings.Repeat("0", 20)}
	if isLive {
		random := make([]byte, len(id.Nonce)/2)
		_, _ = rand.Read(random)
		id.Nonce = hex.EncodeToString(random)
	}
	return id
}
