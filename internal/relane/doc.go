// Package relane changes the number of lanes. A key's lane depends on that number, so a change ends
// one epoch and begins the next.
//
// # State
//
// The row meta/lanes records which epoch is open. During a change it also has the change's present step, under the
// stored name below. Each write of the row has an If-Match, so only one process takes each arrow of this diagram:
//
//	        begin           all lanes closed        all copied            moved recorded
//	(none) ───────▶ drain ──────────────────▶ refile ─────────▶ books ──────────▶ (none)
//	                  │                          │              new epoch open     new number
//	                  └────────────┬─────────────┘
//	                               ▼ weir lanes --undo
//	                             undo ─────▶ (none), old number
//
//	drain   The command sets Sealed in every head. Then Weir refuses appends, and changes of
//	        messages such as cancellations, with 503 and Retry-After. The holders, and the command,
//	        deliver until the lanes are empty. A lane gets Closed in its tail if it is empty, has no
//	        held message, no open request and no pause of an operator, and the settle time of its
//	        last request to the CMS has passed. From then on it has no holder.
//	refile  The command copies scheduled messages, dead messages, the latest delivered versions and
//	        the remembered ids into the lanes of the next epoch, which other processes do not use
//	        yet. One write of meta/lanes then opens the next epoch and so changes the number of
//	        lanes.
//	books   The command corrects the counters in the tails of the closed lanes: copied messages
//	        count in Moved, and copied dead ones no longer in Dead.
//	undo    The command reopens tails, unseals heads and removes copies.
//
// # Invariants
//
//   - A message waits in one epoch only. During a change lanes of two epochs exist, but then the
//     lanes of the old epoch are closed, or those of the new epoch are not open yet.
//   - A closed lane gets no further message. Its counters are corrected, and its rows are removed or
//     erased. So a row that is missing, for example an idempotency key, cannot appear later.
//   - One transaction writes a copy and its o_ row. The key of the o_ row names the message's old place. So a message
//     is copied once, and its old id leads to the copy. Callers and the CMS always see the first id.
//   - Messages of a key keep their order: all waiting messages, except the scheduled ones, became
//     final before the lanes were closed; scheduled and dead messages are copied in the order of
//     their positions; and a key's messages go from one lane into one.
//   - The fences of the new lanes begin at the highest fence of the old lanes, so that the CMS never
//     receives a lower fence than before.
//   - In each lane accepted = delivered + dead + cancelled + superseded + discarded + moved + waiting.
//
// # Failure
//
// The command can stop at any point. If it is started again, it continues from the stored step. Every write is
// conditional on a control row or on the meta row. If the answer to a write is lost, the command reads the row again. A
// write of a killed command may still be on its way. So undo writes each head, and each tail that no holder has written
// meanwhile. It writes them even if nothing in them changes: the new ETag makes the late write fail. For the same
// reason an epoch's number is never used twice.
//
// A lease prevents two commands at a time. An undo first writes its step into the meta row. The
// running command then stops and releases the lease.
//
// While the CMS is down the lanes do not become empty. The command reports this and waits. Until
// the new epoch is open, --undo restores the old one.
package relane
