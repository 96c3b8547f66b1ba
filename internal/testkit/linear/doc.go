// Package linear records the observations of upstreams, the CMS and readers of each ordering key. It
// lets porcupine, a checker for linearizability that others wrote, compare the observations of each key
// with a model of one key.
//
// The model demands: Writes come in the order of acceptance. One writer writes at a time,
// under a fence that never falls. A message that was accepted comes to its end. A write is repeated
// only under its first Idempotency-Key, and before a newer message of its key was begun; if the
// CMS has taken the write, the repeat needs a higher fence.
//
// A write is two operations, its begin and its end, each at one point in time of the CMS's clock. As
// one operation with a duration, two writes at the same time would pass for two writes in turn. A
// post whose answer was not seen takes effect at any time before another operation shows that it did,
// or never.
//
// Only tests import it.
package linear
