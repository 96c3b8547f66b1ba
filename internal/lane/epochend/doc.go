// Package epochend changes the rows of lanes for a new number of lanes. It seals and closes the
// lanes of the epoch that ends. It copies their scheduled and dead messages into the lanes of the
// next epoch, and counts the copied messages. Package relane calls this package step by step. The
// doc comment of package relane describes the whole change.
//
// Every write to a lane includes a control row of the lane, and fails if this row has changed since
// it was read. So a late or repeated write does nothing.
package epochend
