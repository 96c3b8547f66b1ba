// Package relane changes the number of lanes. A key's lane depends on that number, so a change ends
// one epoch and begins the next.
//
// # State
//
// The row meta/lanes records which epoch is open and how far a change has come. It is written under
// If-Match, so each arrow is taken once:
//
//	        begin           all lanes closed        all copied            moved recorded
//	(none) ───────▶ drain ──────────────────▶ refile ─────────▶ books ──────────▶ (none)
//	                  │                          │              new epoch open     new number
//	                  └────────────┬─────────────┘
//	                               ▼ handler lanes --undo
//	                             undo ─────▶ (none), old number
//
//	drain   Sealed in every head: appends and cancels are refused, callers get 503 with
//	        Retry-After. The processes that hold the lanes deliver until they are empty; the
//	        command takes part. A lane gets Closed in its tail if it is empty, has no held
//	        message, and the settle time of its last request has passed. Then no process holds
//	        it any more.
//	refile  Scheduled and dead messages, and the latest delivered versions, are copied into the
//	        next epoch's lanes. Other processes do not know these yet. One write of meta/lanes
//	        then opens the next epoch: that is the change.
//	books   The closed lanes' tails get the number of messages moved (Moved, less Dead).
//	undo    Tails are reopened, heads unsealed, copies removed.
//
// # Invariants
//
//   - A message waits in one epoch only: if lanes of two exist, those of the one are closed or
//     those of the other are not open.
//   - A closed lane does not change, except for its counters and its retention. So a row that is
//     not found in it, for example an idempotency key, will not appear later.
//   - A copy and its o_ row, which names the old place, are one transaction. So a message is
//     copied once, and its old id leads to the copy. Callers and the CMS see the first id,
//     wherever the message is stored.
//   - Messages of a key keep their order: all waiting messages were delivered before the lanes
//     were closed, scheduled and dead messages are copied in the order of the log, and a key's
//     messages go from one lane into one.
//   - The fences of the new lanes begin at the highest of the old ones.
//   - In each lane accepted = delivered + dead + cancelled + superseded + moved + waiting.
//
// # Failure
//
// The command can stop at any point. Run again, it continues from the stored step. Every write is
// conditional on a control row or on the meta row, and is read again if its answer is lost. A write
// of a killed command may still be on its way. So undo writes each head and each tail anew, even
// without a change, and an epoch's number is never used twice.
//
// A lease keeps two commands apart. An undo writes its step into the meta row first; the running
// command sees that, stops, and releases the lease.
//
// While the CMS is down the lanes do not become empty: the command reports that and waits. Until
// the new epoch is open, --undo restores the old one.
package relane
