// Package relane changes the number of lanes. A key's lane depends on that number, so a
// change is the end of one epoch and the beginning of the next.
//
// # State
//
// The row meta/lanes says which epoch is open and how far a change has come. Whoever
// writes it does so under If-Match, so each arrow is gone once:
//
//	        begin           all lanes closed        all copied            booked
//	(none) ───────▶ drain ──────────────────▶ refile ─────────▶ books ──────────▶ (none)
//	                  │                          │              new epoch open     new number
//	                  └────────────┬─────────────┘
//	                               ▼ handler lanes --undo
//	                             undo ─────▶ (none), old number
//
//	drain   Sealed in every head: no append and no cancel passes, callers get 503 with
//	        Retry-After. The lanes run empty, by whichever process holds them; the command
//	        takes part. A lane that is empty, with nothing held and nothing that may still
//	        be at work in the CMS, gets Closed in its tail: nobody holds it any more.
//	refile  Scheduled and dead messages, and the versions that were delivered last, are
//	        copied into the next epoch's lanes. Nobody else knows of these yet.
//	        One write of meta/lanes then opens the next epoch: that is the change.
//	books   The closed lanes' tails get what moved out of them (Moved, less Dead).
//	undo    Tails are reopened, heads unsealed, copies removed.
//
// # Invariants
//
//   - A message is waiting in one epoch only: where lanes of two exist, those of the one are
//     closed or those of the other are not open.
//   - A closed lane does not change but for its books and its retention. So what is not
//     found in it (an idempotency key, say) will not come to be there.
//   - A copy and its o_ row, which names the old place, are one transaction. So a message is
//     copied once, and its old id leads to the copy. The id that callers and the CMS see is
//     the first one, wherever it stands.
//   - Messages of a key keep their order: all that waited was delivered before the lanes
//     were closed, what was scheduled or dead is copied in the order of the log, and a key's
//     messages go from one lane into one.
//   - The fences of the new lanes begin at the highest of the old ones.
//   - In each lane accepted = delivered + dead + cancelled + superseded + moved + waiting.
//
// # Failure
//
// The command can stop at any point: what is written says how far it has come, and run
// again it goes on from there. Every write is conditional on a control row or on the
// meta row, and is read again where its answer is lost. A write of a command that was
// killed may still be on its way; so undo writes each head and each tail anew, also where
// nothing is to be changed, and an epoch's number is never used twice.
//
// Two commands at a time are kept apart by a lease. An undo announces itself in the meta
// row first; the command under way sees that, stops, and gives the lease back.
//
// Where the CMS is down the lanes do not run empty: the command says so and waits. Until
// the new epoch is open, --undo gives the old one back as it was.
package relane
