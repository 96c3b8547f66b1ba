// Package lists reads the rows of a lane for lists, searches and counts: newest messages first, dead messages,
// held and scheduled ones. It changes no row, and holders do not need it.
package lists

import "weir/internal/lane"

// Reader reads the lanes of a store. Its methods may be called concurrently.
type Reader struct{ Store *lane.Store }
