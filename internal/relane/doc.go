// Package relane changes the number of lanes and the folding of keys, for the command "weir lanes".
// A key's lane depends on both, so a change of either ends one epoch and begins the next. Below,
// "number of lanes" stands for both.
//
// # State
//
// The row meta/lanes names the open epoch. During a change the row also has the present step. The
// diagram shows the stored names of the steps. Each write of the row has an If-Match, so only one
// process makes each transition:
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
//	        deliver all messages except the scheduled ones. A lane gets Closed in its tail when no
//	        work is left: no message in the log, no held message, no open request and no pause of an
//	        operator, and when every settle time has passed. A closed lane has no holder.
//	refile  The command copies scheduled messages, dead messages, the latest delivered versions and
//	        the remembered ids into the lanes of the next epoch. Other processes do not use these
//	        lanes yet. Then one write of meta/lanes opens the next epoch, and so changes the number
//	        of lanes.
//	books   The command corrects the counters in the tails of the closed lanes: it adds the copied
//	        messages to Moved, and subtracts the copied dead messages from Dead.
//	undo    The command reopens tails, unseals heads and removes copies.
//
// # Invariants
//
//   - A message waits in one epoch only. All old lanes are closed before the first message is
//     copied, and the new lanes open after the last message is copied.
//   - A closed lane gets no further message. Only its counters change, and its rows are removed or
//     erased. So a missing row, for example of an idempotency key, cannot appear later.
//   - One transaction writes the copy of a message together with an o_ row, whose key has the
//     message's old position. So a message is copied only once, and its old id leads to the copy.
//     Callers and the CMS always see the message's first id.
//   - Messages of a key keep their order. All waiting messages, except the scheduled ones, are
//     final before their lane is closed. Scheduled and dead messages are copied in the order of
//     their key. All messages of a key go from one old lane into one new lane. Keys that the old
//     epoch did not fold into one had no common order; if the new epoch does, their copies lie in
//     it in the order of the old lanes.
//   - The fences of the new lanes begin at the highest fence of the old lanes, so that the CMS
//     never receives a lower fence than before.
//   - In each lane accepted = delivered + dead + cancelled + superseded + discarded + moved +
//     waiting.
//
// # Failure
//
// The command can crash at any point. If it is started again, it continues with the stored step.
// Every write is conditional on a control row or on the row meta/lanes. If the answer to a write is
// lost, the command reads the row again.
//
// A write of a killed command can still arrive later. So undo writes every head and every tail,
// even if nothing in the row changes: the new ETag makes the late write fail. If a lane has a
// holder, undo does not write the lane's tail, but waits until the holder has written it. A late
// write can also reach the lanes of an epoch that was undone, so a later change never uses that
// epoch's number again.
//
// A lease prevents two commands at a time. To undo a change, a second command first writes the step
// undo into the row meta/lanes. Then the running command stops and releases the lease.
//
// While the CMS is down, the lanes do not become empty. The command reports this and waits. Until
// the new epoch is open, --undo restores the old number of lanes.
package relane
