// Package ticket wakes lanes through the queue. A ticket is one line of plain text that means "lane
// L has work"; it never carries a message. It is never JSON, because the Functions host merges a
// JSON message's fields into the trigger's metadata.
//
// The merge rule: an instance needs a ticket that is visible by a certain time. It puts no ticket if one
// of its own tickets, for the lane or for all lanes, will be visible by then. An instance that has eight
// tickets for single lanes in the queue does not put a ninth, but a ticket for all lanes. So an instance
// has about ten tickets, regardless of the number of messages and lanes. With 16 tickets or more the
// platform would add an instance.
//
// A Sender knows only the tickets that it has put. A ticket is pending from the time at which it is put.
// It stops being pending when it is visible and a ticket with its lane number arrives at this instance.
// It also stops being pending a minute after it became visible, because another instance has taken it
// by then. If another instance took a pending ticket earlier, or a put failed, a message waits longer.
// The message is not lost, because the sweep looks at every lane each minute.
package ticket

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	prefix    = "weir lane "
	prefixAll = "weir lanes "
)

// AllLanes is the lane number of a ticket that calls for a look at every lane.
const AllLanes = -1

var errNotOurs = errors.New("decode ticket: not a ticket of ours")

// Encode returns the ticket of a lane, or of AllLanes.
func Encode(epoch, lane int) string {
	if lane == AllLanes {
		return prefixAll + strconv.Itoa(epoch)
	}
	return fmt.Sprintf("%s%d.%d", prefix, epoch, lane)
}

// Decode parses a ticket. It accepts only the result of Encode, so each ticket has one spelling.
// The error does not repeat the text, because content of the queue is not trusted.
func Decode(text string) (epoch, lane int, err error) {
	e, l, _ := strings.Cut(strings.TrimPrefix(text, prefix), ".")
	if all, ok := strings.CutPrefix(text, prefixAll); ok {
		e, l = all, strconv.Itoa(AllLanes)
	}
	epoch, epochErr := strconv.Atoi(e)
	lane, laneErr := strconv.Atoi(l)
	if epochErr != nil || laneErr != nil || epoch < 0 || lane < AllLanes || Encode(epoch, lane) != text {
		return 0, 0, errNotOurs
	}
	return epoch, lane, nil
}
