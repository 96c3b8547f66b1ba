// Package epochend ends an epoch in the rows of its lanes: it seals and closes the lanes, copies their scheduled
// and dead messages into the lanes of the next epoch, and counts them. Package relane decides when each step is
// done, and describes the change as a whole.
//
// Every write has the condition that a control row has not changed since it was read: head for a seal and for
// copies, tail for all else. So a late or repeated write does nothing, and no row appears in a lane that another
// process has changed meanwhile.
package epochend
