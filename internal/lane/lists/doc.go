// Package lists reads the rows of a lane for lists, searches and counts: the log from its newest
// message to its oldest, dead messages, held messages, scheduled messages, and the oldest waiting
// message. The package writes nothing. Delivery does not use it.
package lists

import "weir/internal/lane"

// Reader reads the lanes of a store. Its methods may be called concurrently.
type Reader struct{ Store *lane.Store }
