// Package ticket rings lanes through the queue. A ticket is a bell, never the message
// itself: it says that a lane has work, in one line of plain text. It is never JSON,
// because the Functions host merges a JSON message's fields into the trigger's metadata.
//
// The merge rule: an instance puts a ticket for a lane only when none of its own becomes visible
// there by the time one is needed. An instance that has tickets of eight lanes in the queue puts
// one for all lanes instead of a ninth. So an instance has about ten tickets at most, however
// many messages arrive and however many lanes there are: fewer than the 16 for which the
// platform's scaling asks for another instance.
//
// An instance knows of its own tickets only what it has put. One counts until a ticket of
// its kind arrives here after it became visible, or for a minute after that moment: by
// then another instance has taken it. A ring that relied on a ticket already taken, or
// that failed, costs time and no message: the sweep looks at every lane each minute.
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

// AllLanes stands in the place of a lane's number: the ticket calls for a look at every lane.
const AllLanes = -1

var errNotOurs = errors.New("decode ticket: not a ticket of ours")

// Encode writes the ticket of a lane, or of AllLanes.
func Encode(epoch, lane int) string {
	if lane == AllLanes {
		return prefixAll + strconv.Itoa(epoch)
	}
	return fmt.Sprintf("%s%d.%d", prefix, epoch, lane)
}

// Decode reads what Encode wrote, and nothing else: each ticket has one spelling. What the
// queue holds is not trusted, and the error does not repeat it.
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
