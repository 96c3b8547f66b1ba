// Package linear records the observations of upstreams, the CMS and readers of each ordering key, and
// has porcupine, a checker for linearizability that others wrote, hold it against a model
// of one key.
//
// The model promises: writes come in the order of acceptance; one writer writes at a time,
// under a fence that never falls; an acknowledged message is kept and comes to its end; a
// write is repeated only under its first Idempotency-Key, with a higher fence, and before a
// newer message of its key was begun.
//
// A write is two points in time, its begin and its end, both on the CMS's clock: as one
// interval two writers at once would pass for one after the other. An operation whose
// answer was not seen has no end: it takes effect at any time before something shows that it
// did, or never.
//
// Only tests import it.
package linear
