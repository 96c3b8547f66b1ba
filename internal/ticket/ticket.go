// Package ticket wakes lanes through the queue. A ticket is one line of plain text that means "lane
// L has work"; it never carries a message. It is never JSON, because the Functions host merges a
// JSON message's fields into the trigger's metadata.
//
// The merge rule: an instance puts a ticket for a lane only if none of its own becomes visible by
// the time one is needed. An instance that has tickets of eight lanes in the queue puts one for all
// lanes instead of a ninth. So an instance has about ten tickets, however many messages arrive and
// however many lanes there are: fewer than the 16 from which the platform's scaling asks for
// another instance.
//
// A Sender knows only the tickets that it has put. Each counts as pending until a ticket of its
// kind arrives here after it became visible, or for a minute after that: by then another instance
// has taken it. If a pending ticket was taken already, or a put failed, a message waits longer; it
// is not lost, because the sweep looks at every lane each minute.
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

// AllLanes is used as the lane's number in a ticket that calls for a look at every lane.
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
