package drain

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"weir/internal/lane"
)

// defaultMemory is Config.Memory if it is 0.
const defaultMemory = 128 << 20

// laneMemory bounds the bodies that all lanes of a process have in memory. It has six equal parts:
//
//   - Pages of the log that are being read. If there is no room for a page, the holder reads it without bodies, and
//     reads each body before it sends the message.
//   - Bodies of messages that wait: in the read-ahead, in keys' queues, and for a retry. Each open session has the same
//     share of each of these three parts.
//   - Recent appends. If there is no room, the holder reads the messages from the log.
//   - Bodies under way to the CMS. If there is no room, a message waits for that of other lanes, in order.
//
// Only the last part makes a lane wait, and it waits for attempts alone, which end. So no lane waits for ever.
type laneMemory struct {
	part     int64
	sessions atomic.Int64
	pages    *semaphore.Weighted
	appends  *semaphore.Weighted
	underWay *semaphore.Weighted
}

func newLaneMemory(total int64) *laneMemory {
	if total <= 0 {
		total = defaultMemory
	}
	part := max(total/6, 1)
	return &laneMemory{part: part, pages: semaphore.NewWeighted(part), appends: semaphore.NewWeighted(part),
		underWay: semaphore.NewWeighted(part)}
}

// beginSession counts an open session until end is called.
func (m *laneMemory) beginSession() (end func()) {
	m.sessions.Add(1)
	return func() { m.sessions.Add(-1) }
}

// shareOf returns the bytes of one part that a lane may have in memory, at most the argument "most".
func (m *laneMemory) shareOf(most int) int {
	if m == nil { // in tests of single parts
		return most
	}
	return int(min(int64(most), m.part/max(m.sessions.Load(), 1)))
}

// reservePage reserves room for a page of the log with bodies. It returns nil if there is none.
func (m *laneMemory) reservePage(rows int) (release func()) {
	if m == nil {
		return func() {}
	}
	weight := min(int64(rows)*maxRowBytes, maxPageBytes, m.part)
	if !m.pages.TryAcquire(weight) {
		return nil
	}
	return func() { m.pages.Release(weight) }
}

// reserveUnderWay waits until there is room for the body of a message that is to be sent.
func (m *laneMemory) reserveUnderWay(ctx context.Context, e *lane.Entry) (release func(), err error) {
	weight := min(int64(e.Message.Size), m.part)
	if err := m.underWay.Acquire(ctx, weight); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { m.underWay.Release(weight) }, nil
}
