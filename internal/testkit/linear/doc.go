// Package linear records the observations of upstreams, the CMS and readers for each ordering key.
// Porcupine, a third-party linearizability checker, then compares the observations of each key with
// a model of one key.
//
// The model has these rules for a key:
//   - Messages are written in the order of their acceptance.
//   - Only one write at a time is under way.
//   - The fence of a write is not lower than the fence of any earlier write.
//   - Each accepted message becomes final.
//   - A write is repeated only under the Idempotency-Key of the message's first write.
//   - A write is not repeated after a write of a newer message has begun.
//   - If the CMS has taken a write (see Taken), a repeat needs a higher fence.
//
// A write is late if its sender stalled past the end of its lease (see Begin). For a late write,
// the model demands only that the message was accepted earlier.
//
// Each write is recorded as two operations without a duration: its begin and its end, by the CMS's
// clock. If a write were one operation with a duration, the checker would accept two writes at the
// same time, as if one came after the other.
//
// The answer to a post can be lost. If a later operation shows the message, the post took effect
// before that operation. If no operation shows the message, the post is ignored.
//
// Only tests import this package.
package linear
