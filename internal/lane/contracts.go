package lane

import (
	"slices"
	"time"
)

// Contracts has the names of the contracts in the settings. A message is stored with the name that
// its contract had when it was accepted. If the contract was renamed since, the readers of a Store
// see the present name. If no contract has the name any more, the contract is missing: the message
// waits, and no request is made for it.
//
// A nil *Contracts has every name.
type Contracts struct {
	present map[string]string   // stored name → present name
	former  map[string][]string // present name → former names
}

// NewContracts returns the contracts with these names. The map has the former names of each
// contract.
func NewContracts(formerNames map[string][]string) *Contracts {
	c := &Contracts{present: map[string]string{}, former: formerNames}
	for name, former := range formerNames {
		c.present[name] = name
		for _, old := range former {
			c.present[old] = name
		}
	}

	return c
}

// PresentName returns the present name of the contract with a stored name. If the contract is
// missing, it returns the stored name.
func (c *Contracts) PresentName(stored string) string {
	if c == nil {
		return stored
	}

	if name, ok := c.present[stored]; ok {
		return name
	}
	return stored
}

// Has reports whether the settings have a contract with this present or former name.
func (c *Contracts) Has(name string) bool {
	if c == nil {
		return true
	}
	_, ok := c.present[name]
	return ok
}

// listNames returns the present name of a contract, and then its former names. Rows about a key and
// a contract can be stored under each of these names.
func (c *Contracts) listNames(contract string) []string {
	if c == nil {
		return []string{contract}
	}
	return slices.Concat([]string{contract}, c.former[contract])
}

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
