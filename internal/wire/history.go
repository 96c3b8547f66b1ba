package wire

// Refusal is the JSON form of the number of submissions that were refused for one reason.
type Refusal struct {
	Way      string `json:"way"`
	Reason   string `json:"reason"`
	Contract string `json:"contract,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Count    int64  `json:"count"`
}

// Sender is the JSON form of the number of posts that were accepted from one sender: the name of a
// known upstream, or the fingerprint of a function key.
type Sender struct {
	Sender   string `json:"sender"`
	Accepted int64  `json:"accepted"`
}
