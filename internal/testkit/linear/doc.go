// Package linear records, for each ordering key, the observations of upstreams, the CMS and readers. It then lets
// porcupine, a linearizability checker by other authors, compare the observations of each key with a model of one key.
//
// The model demands: Writes come in the order of acceptance. Only one write at a time is under way, under a fence that
// never falls. Each accepted message becomes final. A write is repeated only under its first Idempotency-Key, and only
// before a write of a newer message of its key has begun. If the CMS has taken the write, the repeat needs a higher
// fence.
//
// Each write is recorded as two operations, its begin and its end. Each of the two is one point in time of the CMS's
// clock. If a write were one operation with a duration, the model would accept two writes at the same time, as if one
// came after the other. If the answer to a post was not seen, the post takes effect at any time before another
// operation shows that it did, or never.
//
// Only tests import it.
package linear
