package drain

import (
	"testing"
	"time"

	"weir/internal/lane"
)

// Storage can cut an answer off at any row. If all messages of that answer were moved during the
// read, the holder knows no later due time. The holder must still know when to read again.
// Otherwise the later messages would stay scheduled for ever.
func TestDueCache_KeepsATimeToReadTheRest(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 31, 8, 0, 0, 0, time.UTC)
	first, second := lane.DueTime{At: at, Seq: 1}, lane.DueTime{At: at.Add(time.Second), Seq: 2}
	for name, test := range map[string]struct {
		known, removed []lane.DueTime
		page           duePage
		want           time.Time
	}{
		"all of the answer moved": {
			removed: []lane.DueTime{first, second},
			page:    duePage{dues: asUnknown([]lane.DueTime{first, second}), more: true}, want: second.At,
		},
		"answer without a row": {page: duePage{more: true}, want: at.Add(-time.Minute)},
		"answer without a row, with known times": {
			known: []lane.DueTime{first, second}, page: duePage{more: true}, want: first.At,
		},
		"nothing is left": {removed: []lane.DueTime{first},
			page: duePage{dues: asUnknown([]lane.DueTime{first})}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dueCache{nextAt: at.Add(-time.Minute)}
			if test.known != nil {
				c.takePage(duePage{dues: asUnknown(test.known)})
			}

			c.beginLoad(make(chan duePage))
			c.removeDues(test.removed...)
			c.takePage(test.page)

			if got := c.nextDueAt(); !got.Equal(test.want) || (test.page.more && c.isLoaded) {
				t.Errorf("got %s as the next due time (loaded: %t), want %s, to be read again if there are more", got,
					c.isLoaded, test.want)
			}
		})
	}
}

// While a read of further due times is under way, the log can bring an earlier one. The cache then
// still has the due time behind which the page of the read begins: neither the cache nor the page
// would have it otherwise, and its message would stay scheduled.
func TestDueCache_CutsNothingOffDuringARead(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 31, 8, 0, 0, 0, time.UTC)
	var known []lane.DueTime
	for i := range duePageRows {
		known = append(known, lane.DueTime{At: at.Add(time.Duration(i)), Seq: int64(i + 2)})
	}

	c := dueCache{nextAt: at}
	c.takePage(duePage{dues: asUnknown(known), more: true})
	last := c.lastRead()
	c.beginLoad(make(chan duePage))
	c.addDue(lane.DueMessage{DueTime: lane.DueTime{At: at.Add(-time.Second), Seq: 1}})
	c.takePage(duePage{after: last})

	if got := c.times[len(c.times)-1]; got != last || len(c.times) != duePageRows+1 {
		t.Errorf("got %v as the last of %d due times, want %v of %d", got, len(c.times), last,
			duePageRows+1)
	}
}
