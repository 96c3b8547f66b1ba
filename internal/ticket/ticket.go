// Package ticket wakes lanes through the queue. A ticket is one line of plain text that means "lane
// L has work"; it never carries an upstream's message. A ticket is never JSON, because the
// Functions host merges a JSON message's fields into the trigger's metadata.
//
// The merge rule keeps the number of tickets small. It applies when an instance needs a ticket that
// is visible by a certain time. The instance puts no ticket if one of its own tickets, for the lane
// or for all lanes, is visible by then. If the instance has eight tickets for single lanes in the
// queue, it puts a ticket for all lanes in place of a ninth. So an instance has about ten tickets,
// regardless of the number of messages and lanes. With 16 tickets or more, the platform would add
// an instance.
//
// A Sender knows only the tickets that it has put. The merge rule counts only pending tickets. A
// ticket is pending from the time at which it is put. The ticket stops being pending in each of
// these cases:
//   - The ticket is visible, and a ticket with its lane number arrives at this instance.
//   - The ticket became visible a minute ago. By then another instance has taken the ticket.
//
// If another instance took a pending ticket within that minute, or if a put failed, a message waits
// longer. The message is not lost, because the sweep looks at each lane each minute.
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

// AllLanes is the lane number of a ticket for all lanes.
const AllLanes = -1

var errNotOurs = errors.New("decode ticket: not a ticket of ours")

// Encode returns the text of a ticket for a lane, or for AllLanes.
func Encode(epoch, lane int) string {
	if lane == AllLanes {
		return prefixAll + strconv.Itoa(epoch)
	}
	return fmt.Sprintf("%s%d.%d", prefix, epoch, lane)
}

// Decode parses the text of a ticket. It accepts only results of Encode, so each ticket has one
// spelling. The error does not repeat the text, because content of the queue is not trusted.
func Decode(text string) (epoch, lane int, err error) {
	e, l, _ := strings.Cut(strings.TrimPrefix(text, prefix), ".")
	if all, ok := strings.CutPrefix(text, prefixAll); ok {
		e, l = all, strconv.Itoa(AllLanes)
	}

	epoch, epochErr := strconv.Atoi(e)
	lane, laneErr := strconv.Atoi(l)
	if epochErr != nil || laneErr != nil || epoch < 0 || lane < AllLanes ||
		Encode(epoch, lane) != text {
		return 0, 0, errNotOurs
	}

	return epoch, lane, nil
}
