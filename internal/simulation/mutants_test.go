package simulation_test

import (
	"cmp"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mutant is the program without one of its rules. The field "text" is a piece of the source file
// that occurs there exactly once, and the field "new" replaces it. The program has no switches for
// mutants: only the test binary of mutant_build_test.go has them. A mutant without a file changes
// the simulation instead: the code of the simulation breaks the rule if the environment variable
// MUTANT has the mutant's name.
type mutant struct {
	name      string // the behaviour of the program without the rule
	file      string // path relative to internal/; empty = the mutant changes the simulation
	text, new string
	caught    string // expected kinds of violations, separated by |; see docs/simulation.md
	// seeds has the largest number of seeds to try, or "number@first seed"; empty = 3000 seeds from
	// 1. The first seed only saves time: it is the one that caught the mutant, and the search goes
	// on behind it.
	seeds string
}

var mutants = []mutant{
	{"fence off", "lane/writer.go", "IfMatch: w.tail.ETag", "IfMatch: storage.AnyETag",
		"fence|books", ""},
	{"trust window off", "lease/lease.go",
		"return l.trustDuration() - l.readClocks().elapsedSince(l.grantedAt)",
		"return l.trustDuration()", "untrusted|overlap", "3000@216"},
	{"blocked keys off", "drain/selector.go", "case block != nil && e.Seq() >= block.firstLogPos:",
		"case false:", "order|repeat|books", ""},
	{"pending keys off", "drain/committer.go", "return c.pendingKeys[keyHash] > 0", "return false",
		"order|repeat|books|stuck", ""},
	{"no message is chosen from the end of the log", "drain/selector.go",
		"atEnd := alternates && s.isFromEnd", "atEnd := false", "unfair", ""},
	{"a long pause begins before each key had its turn", "drain/prober.go",
		"p.breaker.beginPause(0, p.now(), refusedPause)",
		"p.breaker.pausedUntil = p.now().Add(time.Minute)", "unfair", "3000@838"},
	{"a pause for refused messages holds back new ones", "lane/control.go",
		"if c.HasUntried(now) {", "if false {", "unfair", "3000@1520"},
	{"a refused message is sent before the end of its pause", "drain/selector.go",
		"s.journal.isKeyPending(key) || s.breaker.hadTurn(e, now):", "s.journal.isKeyPending(key):",
		"early", "3000@322"},
	{"the log is not read on behind refused messages", "drain/breaker.go",
		"return !g.refusingSince.IsZero() && g.failures >= wholeLogAfter", "return false", "unfair",
		"3000@193"},
	{"a refused attempt counts at once", "drain/breaker.go", "if isProven || now.Sub(",
		"if true || now.Sub(", "spared", ""},
	{"a refused attempt never counts", "drain/breaker.go", ">= g.patience {",
		">= 1000*g.patience {", "stuck", ""},
	{"delivery.patience begins anew with each holder", "drain/breaker.go",
		"t.RefusingSince, t.ProbedBelow = g.refusingSince, g.probedBelow",
		"t.RefusingSince, t.ProbedBelow = time.Time{}, g.probedBelow", "stuck|spared", ""},
	{"a body that storage does not return ends the session", "drain/attempter.go",
		"return a.judgeUnread(ctx, e, err)", "return weir.Result{}, err", "held up", ""},
	{"an attempt without the body never counts", "drain/attempter.go", ">= a.patience {",
		">= 1000*a.patience {", "stuck|held up", ""},
	{"a damaged row ends each read of an outbox", "lane/outbox/outbox.go",
		"p.Damaged, p.End = append(p.Damaged, r), r.Key\n\t\t\tcontinue", "return Page{}, err",
		"untold|stuck", "3000@26"},
	{"a damaged row ends each read of the due times", "lane/damage.go",
		"s.reportDamaged(lane, r.Key, err)\n\t\t\tcontinue", "return nil", "stuck|late|rows", "3000@28"},
	{"the time of a delivery is not recorded", "drain/outcome_recorder.go",
		"ch.UpdateTail(func(t *lane.Tail) { t.LastDeliveredAt = at })", "", "report", ""},
	{"a slow attempt is shown after its end", "drain/session.go",
		`t.AttemptingID, t.AttemptingSince = "", time.Time{}`, "", "report", "3000@26"},
	{"one key for which the CMS is away pauses its lane", "drain/breaker.go",
		"if len(g.awayKeys) == 1 && r.RetryAfter == 0 {", "if false {", "held up|stuck", ""},
	{"settle time off", "drain/breaker.go", "if r.Unanswered {", "if false {", "overlap", ""},
	{"a post that was given up is filed", "lane/append_transaction.go",
		"for sub.ctx.Err() != nil {", "for sub.ctx == nil {", "given up", ""},
	{"calls that hang are not ended", "storage/timelimit/timelimit.go",
		"return context.WithTimeoutCause(ctx, limit, ErrHung)",
		"_ = limit\n\treturn context.WithCancel(ctx)", "hung", ""},
	{"requests sent again by themselves", "", "", "", "overlap", ""},
	{"an unanswered append is taken for a failure", "lane/append_transaction.go",
		"return err // sent again unchanged: at most one copy can succeed",
		"t.ops, t.pending.head = nil, Head{}\n\t\treturn err", "twice", ""},
	{"an append takes its own rows for another's", "lane/append_transaction.go",
		"err != nil || filed {", "err != nil || filed && false {", "twice|history", "3000@294"},
	{"'not there' believed after a timeout", "lane/append_transaction.go",
		"return err // sent again unchanged: at most one copy can succeed",
		"if _, gone := t.a.store.ReadMessage(ctx, t.lane, t.firstSeq); storage.Is(gone, storage.NotFound) {\n\t\t\tt.group, t.ops = append(t.group, t.a.takeWaiting(t.pending)...), nil\n\t\t}\n\t\treturn err", "lost|twice|history", "3000@1006"},
	{"an outsider writes tail", "", "", "", "outsider", ""},
	{"redirects followed", "cms/cms.go", "CheckRedirect: noRedirects",
		"CheckRedirect: func(*http.Request, []*http.Request) error { _ = noRedirects; return nil }",
		"redirect", ""},
	{"watch and sweep off", "drain/lane_worker.go", "case r.State == Busy:\n\t\tt.waitWatching(",
		"case r.State == Busy:\n\t\tt.awaitWake(forever)\n\t\tt.waitWatching(", "stuck", ""},
	{"a release is not written before its message is sent", "drain/due_mover.go",
		"m.journal.addMove(ch, func(err error) {\n\t\t\tw.answer <- moveResult{m.now(), err}\n\t\t\tm.notify()\n\t\t})", "m.journal.addChange(ch, false)\n\t\tw.answer <- moveResult{m.now(), nil}", "unreleased|repeat", ""},
	{"a release leaves its due row", "lane/due.go",
		"c.ops = append(c.ops, storage.Op{Kind: storage.Delete, Key: dueKey(e.DueTime())})", "",
		"rows|cancelled|unreleased", ""},
	{"a due message overtakes its key", "drain/selector.go",
		"return max(k.firstLogPos, k.waitLogPos) <= s.readAhead.firstPendingSeq(k.KeyHash)",
		"return true", "order", ""},
	{"a position is not behind those assigned before", "lane/due.go", "if !at.After(*placed) {",
		"if false {", "order", "3000@101"},
	{"a released message loses its due time", "drain/due_mover.go",
		"ch.Release(e, logPos, &m.keys.lastReleasedAt)",
		"ch.Release(e, logPos, &m.keys.lastReleasedAt)\n\t\te.Message.DueAt = m.now()",
		"early", ""},
	{"a message found late is put at the end of the log", "drain/due_position.go",
		"!e.due.At.Before(now) {", "!e.due.At.Before(now) || true {", "order", ""},
	{"a key is not pending while a release is written", "drain/due_mover.go",
		"return m.moves.shut[keyHash] || m.moves.waiting[keyHash]",
		"return m.moves.waiting[keyHash]", "unreleased|order|books|repeat|rows", ""},
	{"releases that were refused with another one are forgotten", "drain/due_mover.go",
		"mv.ready = append(again, mv.ready...)", "_ = again", "stuck|late|rows", "3000@2947"},
	{"each release has a transaction of its own", "drain/due_mover.go", "len(group) == maxMoves",
		"len(group) == 1", "slow|late", "3000@955"},
	{"no lead, however long storage takes", "drain/due_position.go",
		"return min(max(l.read.longest()+l.write.longest(), leadMin), leadMax)",
		"return 0 * leadMin", "late|unfair|slow", "3000@298"},
	{"sent messages are not recorded for positions", "drain/due_position.go",
		"if p.sentBelow == 0 {\n\t\treturn\n", "if true {\n\t\treturn\n", "order", "3000@488"},
	{"sending one key moves the positions of all", "drain/due_position.go",
		"if !hasDue || len(p.sentOf) >= maxSentKeys {", "if true {", "order", "3000@121"},
	{"a message waits for due messages of other keys", "drain/due_cache.go",
		"c.firstUndecided[c.keys[d]] = d.At", `c.firstUndecided[""] = d.At`, "slow", "3000@298"},
	{"moves of due messages run ahead of the CMS", "drain/due_mover.go",
		"m.isHeldBack = m.holdBack(ready, soon); m.isHeldBack {",
		"m.isHeldBack = m.holdBack(ready, soon) && false; m.isHeldBack {", "slow", "3000@298"},
	{"a cancellation is counted twice", "lane/request.go", "if w.Done {", "if true {", "books", ""},
	{"a cancellation is not counted", "lane/request.go", "if w.Done {", "if false {",
		"books|stuck", ""},
	{"requests count as seen and are not granted", "drain/request_handler.go",
		"for _, r := range requests {\n\t\t\tif", "for _, r := range requests[:0] {\n\t\t\tif",
		"rows", ""},
	{"offered appends are used before the log was read", "drain/read_ahead.go",
		"w.hasCaughtUp = w.hasCaughtUp || len(p.entries) < p.asked", "w.hasCaughtUp = true",
		"repeat|books", "3000@451"},
	{"messages of contracts that skip failures have no order", "drain/selector.go",
		"case ahead[key] != nil && 2*e.Seq() >= ahead[key].Rank():",
		"case ahead[key] != nil && false:", "order", "3000@24"},
	{"deliveries behind dead messages are not recorded", "drain/outcome_recorder.go",
		"ch.SaveLastDelivery(c.entry)", "", "replayed", ""},
	{"the key of a dead message is not tracked", "drain/outcome_recorder.go",
		"h.tracked.addKey(key)", "", "replayed", ""},
	{"a replay is granted without another check", "drain/request_handler.go",
		"if err == nil && isReplay && entries[i].Stage == weir.Dead {", "if false {", "replayed",
		"3000@569"},
	{"a repeated call replays once more", "lane/replay.go", "nonce: nonceOf(ctx)}",
		"nonce: newNonce()}", "replayed", "3000@107"},
	{"a superseded message gets no warning of a fraction", "lane/key_rows.go",
		"warning := cmp.Or(by.Warning, weir.DescribeFraction(old.Version, by.Version))",
		"warning := cmp.Or(by.Warning)", "superseded", ""},
	{"a replayed message is still counted as dead", "lane/replay.go", "t.Counts.Dead--", "",
		"books", ""},
	{"a replayed message is put behind its key", "lane/replay.go",
		"Key: rows.HeldKey(e.BlockID(), e.orderPos())",
		"Key: rows.HeldKey(e.BlockID(), OrderPos(e.Seq()+1000))", "rows|order", ""},
	{"a step longer than all pauses is taken for the work of a wrong clock", "drain/prober.go",
		"longest = max(longest, step)", "_ = step", "early", "3000@226"},
	{"a retry is sent early with a replayed message before it", "drain/selector.go",
		"if next := e.NextAttempt(); k.BrakedContract == \"\" && next.After(s.now()) &&",
		"if next := e.NextAttempt(); false &&", "early", "6000@783"},
	{"pauses are not checked again before a message is sent", "drain/attempter.go",
		"err != nil || !may {", "err != nil || !may && false {", "paused", "3000@64"},
	{"an old read of the pauses is used", "drain/timetable.go",
		"return now.Sub(p.askedAt) > maxPausesAge", "return false", "paused", "3000@64"},
	{"a message parked in a pause is overtaken", "drain/key_state.go",
		"k.LogWaitsFrom, k.IsParked = seq, true", "_ = 0", "order", "3000@169"},
	{"messages parked in a pause have no order", "drain/selector.go",
		"(!k.goesAhead() || ahead[k.KeyHash]", "(true || ahead[k.KeyHash]", "order", "3000@109"},
	{"a forgotten version stays in memory", "drain/request_handler.go",
		"h.versions.remember(key, lane.LatestVersion{})", "", "forgotten", "3000@38"},
	{"a request to forget a version is deleted without the change", "drain/request_handler.go",
		"ch.ForgetVersion(key)", "", "forgotten", ""},
	{"a message that may be sent is erased", "lane/erase.go", "if !e.Stage.Final() {", "if false {",
		"erased", "3000@10"},
	{"a message whose replay waits is erased", "lane/erase.go", "if isAsked {",
		"if isAsked && false {", "erased", "3000@180"},
	{"a message whose discard waits is erased", "lane/erase.go", "if isDiscardAsked {",
		"if isDiscardAsked && false {", "erased", "3000@738"},
	{"an erasure leaves the body", "lane/erase.go",
		"ops := []storage.Op{{Kind: storage.Replace, Key: row.Key,",
		"ops := []storage.Op{{Kind: storage.Merge, Key: row.Key,", "erased", ""},
	{"a discarded message is still counted as dead", "lane/discard.go", "t.Counts.Dead--", "",
		"books", "3000@14"},
	{"the number of discarded messages is lost", "lane/tail.go",
		"rows.Discarded.Is(t.Counts.Discarded)", "rows.Discarded.Is(0)", "books|stuck", "3000@14"},
	{"a discarded message stays dead", "lane/discard.go", "rows.Stage.Is(string(e.Stage)), ", "",
		"discarded|books|rows", ""},
	{"a message whose replay waits is discarded", "lane/discard.go", "if isReplayAsked {",
		"if isReplayAsked && false {", "discarded", ""},
	{"a request to discard is deleted without the change", "drain/request_handler.go",
		"\tch.Discard(e, r, at)", "", "discarded", ""},
	{"a resumption does not raise the number of requests", "lane/markers.go", "c.Head.RequestSeq + 1",
		"c.Head.RequestSeq + 0", "rows|stuck", ""},
	{"bulk replays of killed processes are not resumed", "replay/runner.go",
		"unfinished = append(unfinished, r.newTask(row.ID))", "_ = row", "stuck", ""},
	{"the batch that a bulk replay has begun is forgotten at a takeover", "replay/job_run.go",
		"w.lanes, w.isResumed =", "w.checkpoint.Next = nil\n\tw.lanes, w.isResumed =", "bulk",
		"3000@80"},
	{"a failed transaction of replays is taken for done", "lane/many.go",
		"if failed == nil && !g.isAlone[i] {", "if (failed == nil || true) && !g.isAlone[i] {",
		"bulk|stuck", "3000@784"},
	{"a bulk replay replays its open messages again", "replay/dead_index.go", " && !p.isOpen(i)",
		"", "bulk", "3000@1122"},
	{"occurrences are filed without their idempotency keys", "recur/occurrence.go",
		`s.idempotencyKey(formatDue(due)))`, `formatDue(due)[:0])`, "recurring|twice", ""},
	{"a schedule's name is taken for its identity", "recur/schedule.go",
		`s.Name + "@" + s.creationID + "@" + message`, `s.Name + "@" + message`, "recurring",
		"3000@17"},
	{"a schedule moves on before its message is filed", "recur/occurrence.go",
		"return receipt, err\n\t}\n\tid :=", "return receipt, nil\n\t}\n\tid :=", "recurring", ""},
	{"a callback is not written with the final stage", "lane/transaction.go",
		"c.addCallback(e.Seq(), e.Message.Callback, stage, at)", "", "untold", ""},
	{"a held message that is superseded loses its callback", "lane/key_queue.go",
		`Callback: rows.Callback.Of(v), `, "", "untold", "3000@131"},
	{"an outbox is taken for empty although an event came meanwhile", "lane/outbox/outbox.go",
		"ops = append(ops, storage.Op{Kind: storage.Delete, Key: rows.OutboxKey, IfMatch: marker})",
		"ops = append(ops, storage.Op{Kind: storage.Delete, Key: rows.OutboxKey, IfMatch: storage.AnyETag})", "untold", "3000@249"},
	{"a page that is not full is taken for the end", "lane/rows/paging.go",
		"more && len(found) < limit; {", "more && len(found) == 0; {",
		"rows|repeat|superseded|stuck", "3000@63"},
	{"an event is dropped at its first failure", "notify/result.go",
		"if now.Sub(next.FirstTriedAt) >= giveUpAfter {", "if true {", "untold", "3000@16"},
	{"events of a receiver that is away are postponed", "notify/lines.go",
		"\t\tt.leaveInRow(l, m.Event)\n\t}", "\t\tt.handleFailure(m.Event, response{})\n\t}",
		"rewritten", "3000@16"},
	{"events without room in memory are postponed", "notify/outbox_read.go",
		"l.readOnlyUpTo(m.KeyBefore(), t.sender.Now())",
		"t.inProgress[mailKey(m)] = true\n\t\tt.handleFailure(m, response{})", "rewritten",
		"3000@16"},
	{"retention before its time", "lane/retention_remove.go", "ok && !end.After(now)",
		"ok && !end.IsZero()", "removed", ""},
	{"records of last deliveries are left", "lane/retention.go",
		"if err == nil && t.nextEpoch == nil {", "if err == nil && false {", "left", ""},
	{"idempotency keys are left", "lane/retention_remove.go",
		"ops = append(ops, storage.Op{Kind: storage.Delete, Key: idem})", "_ = idem", "left", ""},
	{"retention stops at a row that storage refuses to remove", "lane/retention_remove.go",
		"t.reportRefused(t.lane, m.seq, err)\n\t\t\treturn nil\n\t\t}\n\t}",
		"return err\n\t\t}\n\t}", "left", "3000@13"},
	{"retention stops at a body that storage refuses to remove", "lane/retention_remove.go",
		"|| ctx.Err() != nil {\n\t\t\treturn err", "|| true {\n\t\t\treturn err", "left",
		"3000@22"},
	{"a message whose contract is missing is sent", "drain/missing_contract.go",
		"return !m.store.Contracts.Has(e.Message.Contract)", "return false", "contract", ""},
	{"a contract that came back is not looked for", "lane/control.go", "c.isContractBack = true",
		"_ = m", "returned", "3000@42"},
	{"a message whose contract is missing holds up its lane", "drain/selector.go",
		"s.parkMissing(e)\n\t\tcase", "return -1\n\t\tcase", "unfair|stuck", "3000@42"},
	{"versions of a contract are forgotten when it is renamed", "lane/key_rows.go",
		"range ds.store.Contracts.listNames(contract) {\n\t\tl, err",
		"range []string{contract} {\n\t\tl, err",
		"superseded", "3000@457"},
	{"a lane that a crashed holder left at rest stays with it", "drain/lane_worker.go",
		"case t.isAbandoned(control.Tail, now):", "case false && t.isAbandoned(control.Tail, now):",
		"unfair", "1@103363"},
	{"the token of the sign-in is no secret", "cms/secrets.go", "if s.current != nil {",
		"if false {", "secret", ""},
	{"the texts of answers are not decoded", "conceal/decode.go", "if !d.decodeAll() {",
		"if !d.decodeAll() || true {", "secret", ""},
	{"an answer is stored as it came", "cms/cms.go", "shown := hide(Shorten(text))",
		"shown := Shorten(text)", "secret", ""},
	{"attempts make a message dead before the least time", "drain/outcome_recorder.go",
		"&& o.leastTime.isOver(e, result.StartedAt)",
		"&& (true || o.leastTime.isOver(e, result.StartedAt))", "hasty", ""},
	{"the least time begins anew with each attempt", "lane/transaction.go",
		"first.IsZero() || first.After(r.StartedAt)", "first.IsZero() || !first.Equal(r.StartedAt)",
		"attempts|stuck|held up", ""},
	{"the time of the first failure outlasts a replay", "lane/transaction.go",
		"if e.AttemptsSinceReplay() == 0 {", "if e.AttemptCount == 0 {", "hasty", "3000@574"},
	{"a new holder forgets that the CMS fails", "drain/breaker.go",
		"g.isSuspected = t.PauseCount > 0 || !t.RefusingSince.IsZero()", "_ = t", "spared",
		"3000@164"},
	{"a quiet lane does not notice that the CMS fails", "drain/prober.go",
		"return max(2, min(len(waiting), suspectKeys))", "return suspectKeys", "spared", "3000@16"},
	{"a brake never closes", "drain/brake.go", "if len(found.keys) < b.limit {",
		"if len(found.keys) < 1000 {", "mass", ""},
	{"a delivery opens no brake", "drain/prober.go",
		"p.braked.openContract(c.entry.Message.Contract)", "_ = c", "unaware|stuck", ""},
	{"a brake counts for one lane alone", "drain/session.go", "brakes: d.brakes, keys: s.keys",
		"brakes: newBrakes(d.Brake, d.Patience, d.Backoff), keys: s.keys", "mass", "3000@38"},
	{"a recovery ends no pause of other lanes", "drain/outlook.go", "return o.last.Ends(t)",
		"return false && o.last.Ends(t)", "unaware", "3000@164"},
	{"a trouble outlasts its pauses", "drain/outlook.go",
		"now.Sub(t.pausesUntil) > troubleEndsAfter", "false", "unaware", "5@473"},
	{"the holder seldom looks for messages of other processes", "drain/session_wait.go",
		"return closeLook\n", "return lingerLook\n", "unseen", "3000@18"},
	{"the scout does not hurry", "drain/outlook.go",
		"scoutPauseMin+max(lasts-scoutHurriesFor, 0)/scoutShare", "lasts/scoutShare",
		"unaware", "3000@108"},
	{"no lane is the scout", "drain/outlook.go", "if delay > longest && ",
		"if false && delay > longest && ", "unaware", "3000@80"},
	{"a recovery ends pauses that begin after it", "lane/tail.go", "r.At.After(t.LastErrorAt)",
		"!r.At.IsZero()", "ended|unaware|stuck", ""},
	{"a recovery ends a pause for which the CMS has asked", "drain/breaker.go",
		"if r.RetryAfter > 0 {\n\t\treturn \"\"", "if false {\n\t\treturn \"\"", "ended",
		"3000@29"},
	{"bodies without a message are left", "lane/retention_forgotten.go",
		"if info.Marked || len(parts) != 3 {", "if true {", "left", ""},
}

// mutantsSeenFromOutside has the mutants that only the check of the histories is to catch; see the
// constant "outside".
var mutantsSeenFromOutside = []mutant{
	{"blocked keys off" + outside, "drain/selector.go",
		"case block != nil && e.Seq() >= block.firstLogPos:", "case false:", "history", ""},
	{"pending keys off" + outside, "drain/committer.go", "return c.pendingKeys[keyHash] > 0",
		"return false", "history", ""},
	{"an unanswered append is taken for a failure" + outside, "lane/append_transaction.go",
		"return err // sent again unchanged: at most one copy can succeed",
		"t.ops, t.pending.head = nil, Head{}\n\t\treturn err", "history", "3000@59"},
}

// mutantsOfLarge has the mutants that TestLarge catches.
var mutantsOfLarge = []mutant{
	{"each ticket stays with its lane", "residence/stay/stay.go",
		"case s == nil || s.limited.Err() != nil:", "case true:", "tickets", "6"},
	{"a sweep looks at one lane after the other", "lane/delete.go", "group.SetLimit(maxConcurrent)",
		"group.SetLimit(1)", "sweep", "6"},
	{"each outcome in a commit of its own", "drain/session.go",
		"s.journal.waitBelow(ctx, maxUncommitted)", "s.journal.waitBelow(ctx, 1)",
		"cost|late", "6"},
}

// mutantsOfMoves has the mutants that TestMoves catches.
var mutantsOfMoves = []mutant{
	{"a lane is released before the commit", "drain/session.go",
		"s.journal.addChange(s.buildHandOver(), true)", "_ = s.buildHandOver\n\tcancel()",
		"again|repeat", "12"},
	{"a lane is kept without an invocation", "residence/stay/stay.go",
		"time.NewTimer(yieldAt)\n\thandOver, limit := time.NewTimer(handOverAt),",
		"time.NewTimer(time.Hour)\n\thandOver, limit := time.NewTimer(time.Hour),",
		"stands|again", "12"},
	{"an invocation stays without a limit", "residence/stay/stay.go",
		"time.NewTimer(yieldAt)\n\thandOver, limit := time.NewTimer(handOverAt), time.NewTimer(stayLimit)", "time.NewTimer(time.Hour)\n\thandOver, limit := time.NewTimer(time.Hour), time.NewTimer(time.Hour)", "timeout", "12"},
	{"claims are ignored", "drain/handover.go", "return claimed && claim.By != d.me",
		"_ = claim\n\treturn claimed && false", "stands|again", "12"},
	{"lanes are taken although the host is drained", "residence/permit.go",
		"return until == 0 || p.now().UnixNano() >= until", "return until >= 0",
		"unattended|again", "20@4"},
	{"an invocation leaves lanes that no ticket named", "residence/stay/stay.go",
		"for _, held := range a.Drainer.Held() {", "for _, held := range a.Drainer.Held()[:0] {",
		"unattended|again", "20@4"},
	{"a claim outlives the drain", "drain/lane_worker.go", "t.drainer.withdrawClaim(ctx, t)", "",
		"idle", "42@34"},
	{"an invocation is not relieved", "residence/stay/stay.go", "close(s.seat.relieved)",
		"a.mu.Unlock()\n\t\treturn nil", "stands", "12@3"},
	{"a ticket counts for a message that was filed after it", "ticket/ticket.go",
		"s.enqueueFresh(ctx, lane, 0, 0)", "s.enqueueFresh(ctx, lane, queueResolution, 0)",
		"waits", "1@1642"},
	{"a lane without work is not claimed", "residence/stay/answer.go",
		"r.State == drain.Busy || r.HolderFence != 0", "r.State == drain.Busy",
		"unattended", "42@6"},
	{"a claimed lane is taken only with work", "drain/lane_worker.go",
		"case t.claims.isBy(t.drainer.me, now) && ", "case false && ", "unattended", "42@6"},
	{"a lane is not claimed from its next holder", "residence/stay/answer.go",
		"a.keptUnder[lane] == holderFence && ", "", "unattended", "42@20"},
}

// mutantsOfShortPages has the mutants that TestShortPages catches.
var mutantsOfShortPages = []mutant{
	{"the rest of a cut answer of due times is forgotten", "drain/due_cache.go",
		"c.isLoaded, c.hasMore, c.kept, c.firstUndecided = true, p.more, len(c.times), nil",
		"c.isLoaded, c.hasMore, c.kept, c.firstUndecided = true, false, len(c.times), nil",
		"stuck|rows", "200@150"},
}

// mutantsOfKillers has the mutants that TestKillers catches.
var mutantsOfKillers = []mutant{
	{"a holder that made no attempt ends the crashes in a row", "drain/crash_guard.go",
		"if g.hasSurvived {", "if true {", "killer|stuck", "30"},
	{"an attempt that was not made absolves its message", "drain/crash_guard.go",
		"if outcome == weir.OutcomeNone {", "if false {", "killer", "100@36"},
}

// mutantsOfBatches has the mutants that TestBatches catches.
var mutantsOfBatches = []mutant{
	{"parts of a lane are appended in another order", "lane/append_in_order.go",
		"		if d.sub != nil {\n			s = append(s, d.sub)",
		"		if d.sub != nil {\n			s = append(series{d.sub}, s...)", "parts", "30"},
	{"a part behind a failed part is appended", "lane/append_in_order.go",
		"			refuseBehind(drafts[n:])\n			return\n", "", "parts", "30"},
}

// mutantsOfAudits has the mutants that TestAudits catches.
var mutantsOfAudits = []mutant{
	{"an erasure searches the beginnings of keys", "audit/redact.go",
		"lane.ErasedKey(key) != erasedKey",
		"lane.ErasedKey(key) != erasedKey && lane.ErasedKey(key[:len(key)-1]) != erasedKey",
		"redacted", "60"},
	{"an entry has no index", "audit/log.go", "indexOps(storage.Insert, key, terms)...)",
		"indexOps(storage.Insert, key, terms)[:0]...)", "redacted", "60"},
	{"a repeated erasure does not look for late entries", "../functions/write/erase.go",
		"erasedKey := m.Key\n",
		"if !before.ErasedAt.IsZero() {\n\t\treturn nil\n\t}\n\terasedKey := m.Key\n",
		"redacted", "60"},
}

// mutantsOfGrowth has the mutants that TestGrowth catches.
var mutantsOfGrowth = []mutant{
	{"clean-up jobs share a limit, in a fixed order", "upkeep/upkeep.go",
		"slices.SortStableFunc(due, func(a, b *jobState) int { return a.lastAt.Compare(b.lastAt) })\n\tfor _, job := range due {", "ctx, cancel := context.WithTimeout(ctx, stepLimit/10)\n\tdefer cancel()\n\tfor _, job := range due {", "growth", "30"},
	{"a clean-up job that is not done waits for a day", "upkeep/upkeep.go", "if !step.IsDone {",
		"if false {", "growth", "30"},
	{"a clean-up job begins anew in each round", "upkeep/upkeep.go",
		"job.Run(limited, stored.marker)", `job.Run(limited, "")`, "growth", "30"},
	{"a walk is done before its end", "upkeep/job.go", "Step{Marker: next, IsDone: isDone}, err",
		"Step{IsDone: isDone || next == next}, err", "growth", "30"},
	{"the marker of a job that failed is lost", "upkeep/upkeep.go",
		"next := position{marker: step.Marker, nextAt: k.nextAt(job, step)}",
		"next := position{nextAt: k.nextAt(job, step)}", "growth", "30"},
	{"the quota counts each try", "filing/filer.go",
		"case lane.IsNotAppended(err), IsRefusal(err):", "case IsRefusal(err):", "quota", "30"},
	{"the quota counts a submission again after a lost answer", "upstream/charge.go",
		"if !q.remembered[*id] {", "if true {", "quota", "30"},
	{"leases of bulk replays are left", "upkeep/leases.go", "listing.Walk(leasePrefixes, ",
		"listing.Walk(leasePrefixes[:1], ", "growth", "30"},
	{"finished bulk replays are left", "upkeep/job.go", "FinishedReplays(p.Replays), ", "",
		"growth", "30"},
	{"messages without a schedule are left", "upkeep/job.go",
		" ScheduleMessages(p.Schedules.RemoveMessages),", "", "growth", "30"},
	{"rejected files are left", "upkeep/job.go", ", RejectedFiles(p.Files.RemoveRejected))", ")",
		"growth", "30"},
	{"documents without a batch are left", "upkeep/job.go",
		", BatchDocuments(p.Batches.RemoveDocuments))", ")", "growth", "30"},
	{"old rows of the history are left", "upkeep/job.go", "HistoryRows(p.History), ", "",
		"growth", "30"},
	{"the index of the audit log is left", "audit/log.go",
		"indexOps(storage.Delete, row.Key, terms)...)",
		"indexOps(storage.Delete, row.Key, terms)[:0]...)", "growth", "30"},
	{"the quota does not count", "upstream/charge.go", "case result == weir.Appended:",
		"case false:", "quota", "30"},
}

// mutantsOfAhead has the mutants that TestAhead catches.
var mutantsOfAhead = []mutant{
	{"bodies under way have no bound", "drain/attempter.go",
		"release, err := a.drainer.memory.reserveUnderWay(ctx, e)",
		"release, err := func() {}, context.Cause(ctx)", "memory", "3"},
	{"each lane has a room of its own for bodies ahead", "drain/session.go",
		"room: d.prefetchRoom}", "room: newPrefetchRoom()}", "memory", "3"},
	{"a body ahead takes a part of its room", "drain/attempter.go",
		"weight := min(int64(e.Message.Size), maxPrefetchTotal)",
		"weight := min(int64(e.Message.Size), maxPrefetchTotal) / 4", "memory", "3"},
}

// mutantsOfLife has the mutants that TestLongLife catches.
var mutantsOfLife = []mutant{
	{"a process remembers each job that it has tried", "job/host.go",
		"return !isUnfinished[id] && h.running[id] == nil", "return false", "memory", "1"},
	{"the timer of a schedule that is deleted stays", "recur/runner.go",
		"\t\t\tt.timer.Stop()\n\t\t\tdelete(r.timers, name)", "\t\t\tt.timer.Stop()",
		"memory", "1"},
}

// mutantsOfFolders has the mutants that TestInFolder catches: each takes a rule of the embedded
// store away.
var mutantsOfFolders = []mutant{
	{"the folder's store checks no ETag", "storage/embedded/table.go",
		"case op.ifMatch != \"\" && op.ifMatch != storage.AnyETag && op.ifMatch != rowETag(stored):", "case false:",
		"fence|books|twice|lost|history|order|overlap", "200"},
	{"the folder's store writes over a row that is to be new", "storage/embedded/table.go",
		"case op.kind == storage.Insert && exists:",
		"case op.kind == storage.Insert && exists && op.key == \"\":",
		"twice|books|history|lost", "200"},
	{"a refused transaction of the folder's store is answered as done",
		"storage/embedded/committer.go",
		"ch.refused != nil {\n\t\t\t\treturn nil",
		"ch.refused != nil {\n\t\t\t\tch.refused = nil\n\t\t\t\treturn nil",
		"lost|twice|books|history|fence|stuck|overlap", "200"},
	{"a transaction of the folder's store is done in part", "storage/embedded/table.go",
		"for i, op := range w.ops {\n\t\tif op.kind == storage.Delete {",
		"for i, op := range w.ops[:min(len(w.ops), 2)] {\n\t\tif op.kind == storage.Delete {",
		"lost|books|stuck|history|rows|repeat", "200"},
	{"a lease of the folder's store has two holders", "storage/memory/leases.go",
		"if held != nil && held.id != \"\" && held.id != id && l.now().Before(held.expiresAt) {",
		"if false {",
		"overlap|fence|unfair", "200"},
}

// mutantsOfChains has the mutants that TestChains catches.
var mutantsOfChains = []mutant{
	{"a sign-in page is the answer of a write", "steps/judge.go",
		"case a.isPage && !st.readsText():", "case false:", "unwritten", "80@170"},
	{"a chain resumes behind its look-up", "steps/run.go",
		"func (r *run) runStep(st *step) verdict {\n",
		"var foundBefore = map[weir.ID]any{}\n\nfunc (r *run) runStep(st *step) verdict {\n\tif found := foundBefore[r.delivery.Message.ID]; found != nil && st.isSafe {\n\t\tr.env[st.name] = found\n\t\treturn verdict{do: actionOK}\n\t}\n\tif st.isSafe {\n\t\tdefer func() { foundBefore[r.delivery.Message.ID] = r.env[st.name] }()\n\t}\n", "duplicate", "30"},
	{"one Idempotency-Key for two steps", "steps/run.go",
		"key := req.Header.Get(idempotencyHeader) + \"/\" + st.name",
		"key := req.Header.Get(idempotencyHeader) + \"/step\"", "key", "30"},
	{"a replay has the first Idempotency-Key", "cms/cms.go", "if m.Replays == 0 {", "if true {",
		"content|newest", "60"},
	{"an attempt runs its chain without end", "steps/run.go", "if r.round > maxAgain {",
		"if r.round > 1000 {", "endless", "30"},
	{"a remembered id is not committed", "drain/supersede.go",
		"next = ch.SaveRemembered(c.entry, result.RememberedID, c.remembered)",
		"next, _ = lane.Remembered{ID: result.RememberedID}, ch.SaveRemembered", "memory", "30"},
	{"an item that is gone is remembered", "steps/run.go", "\t\t\tr.forgetID()\n", "",
		"refused|lost|stuck", "60"},
	{"a chain that is run again forgets what it learned", "steps/remember.go",
		"r.rememberedID, r.learnedID = id, id", "r.learnedID = id", "duplicate", "60"},
	{"a forgotten id stays in memory", "drain/supersede.go",
		"\th.ids.keepID(key, lane.Remembered{})\n", "", "memory", "60@56"},
	{"keys are folded for the lane only", "lane/keys.go", `rows.Hash("key", s.Fold.Fold(key))`,
		`rows.Hash("key", key)`, "order", "120"},
	{"keys are folded for the order only", "lane/keys.go", "Of(e.Fold.Fold(key), e.Lanes)",
		"Of(key, e.Lanes)", "item|duplicate|newest", "120"},
	{"a version supersedes other spellings of its key", "drain/supersede.go",
		"e.Message.Contract != first.Message.Contract || e.Message.Key != first.Message.Key || ",
		"e.Message.Contract != first.Message.Contract || ", "order|newest", "120"},
	{"a look-up rejects the message", "cms/verdict.go",
		"content == OwnWords && !reads && isOneOf(contentStatuses)",
		"content == OwnWords && isOneOf(contentStatuses)", "unjudged", "30"},
	{"a page of a proxy rejects the message", "cms/verdict.go",
		"case !isPage && isOneOf(builtStatuses), content == OwnWords && !reads",
		"case isOneOf(builtStatuses), !reads", "unjudged", "30"},
	{"an unknown error of a query rejects the message", "steps/graphql.go",
		"case least == badInput && !isQuery:", "case least >= unknownError:", "unjudged", "30"},
	{"a 403 begins no sign-in", "signin/transport.go", "case slices.Contains(forbidden, status):",
		"case false:", "stuck|spared|refused", "6@35"},
	{"an unanswered write has no settle time", "steps/run.go",
		"if st.isSafe {\n\t\tfailure.Unanswered = false",
		"if true {\n\t\tfailure.Unanswered = false", "overlap|duplicate", "30"},
}

// mutantsOfRates has the mutants that TestRates catches.
var mutantsOfRates = []mutant{
	{"slots go by the clock of the process", "limiter/clock.go",
		"{ return c.low + (c.high-c.low)/2 }", "{ return 0 }", "rate|unused|stuck", "30"},
	{"slots of a process that died are given again", "limiter/reserve.go",
		"latest(s.firstFree, s.pausedUntil, now.Add(l.lead))",
		"latest(s.pausedUntil, now.Add(l.lead))", "rate", "30"},
	{"two processes reserve the same slots", "limiter/reserve.go",
		"IfMatch: s.etag", "IfMatch: storage.AnyETag", "rate", "30"},
	{"a chain counts as one request", "limiter/limiter.go",
		"if t != nil && t.useFirst(l) {", "if t != nil {", "rate", "30"},
	{"a process reserves only for requests that wait", "limiter/appetite.go",
		"a.ahead = min(max(2*a.ahead, a.most/4, 1), a.most)", "a.ahead = 0", "unused", "30"},
}

func TestMutants_AreCaught(t *testing.T) {
	for _, m := range slices.Concat(mutants, mutantsSeenFromOutside) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			seeds, from, _ := strings.Cut(m.seeds, "@")
			m.isCaught(t, "TestSeeds", "SEEDS="+cmp.Or(seeds, "3000"), "FROM="+cmp.Or(from, "1"))
		})
	}
}

// TestMutants_QuoteTheSource checks within a second that the source files have the texts that the
// mutants of this file replace.
func TestMutants_QuoteTheSource(t *testing.T) {
	t.Parallel()
	for _, m := range listProgramMutants() {
		if _, _, err := m.readSource(); err != nil {
			t.Error(err)
		}
	}
}

func TestMutants_AreCaughtInLargeWorlds(t *testing.T) {
	catchMutants(t, mutantsOfLarge, "TestLarge", "LARGE")
}

func TestMutants_AreCaughtInWorldsOfMoves(t *testing.T) {
	catchMutants(t, mutantsOfMoves, "TestMoves", "MOVES")
}

func TestMutants_AreCaughtInWorldsOfShortPages(t *testing.T) {
	catchMutants(t, mutantsOfShortPages, "TestShortPages", "SHORT")
}

func TestMutants_AreCaughtInWorldsOfKillers(t *testing.T) {
	catchMutants(t, mutantsOfKillers, "TestKillers", "KILLERS")
}

func TestMutants_AreCaughtInWorldsOfAudits(t *testing.T) {
	catchMutants(t, mutantsOfAudits, "TestAudits", "AUDITS")
}

func TestMutants_AreCaughtInDepots(t *testing.T) {
	catchMutants(t, mutantsOfGrowth, "TestGrowth", "GROWTH")
}

func TestMutants_AreCaughtInLongLives(t *testing.T) {
	catchMutants(t, mutantsOfLife, "TestLongLife", "LIFE")
}

func TestMutants_AreCaughtInHoards(t *testing.T) {
	catchMutants(t, mutantsOfAhead, "TestAhead", "AHEAD")
}

func TestMutants_AreCaughtInFolders(t *testing.T) {
	catchMutants(t, mutantsOfFolders, "TestInFolder", "IN_FOLDER")
}

func TestMutants_AreCaughtInWorldsOfChains(t *testing.T) {
	catchMutants(t, mutantsOfChains, "TestChains", "CHAINS")
}

func TestMutants_AreCaughtInWorldsOfRates(t *testing.T) {
	catchMutants(t, mutantsOfRates, "TestRates", "RATES")
}

// catchMutants checks that a test catches each mutant. The parameter env is the environment
// variable with the test's number of seeds.
func catchMutants(t *testing.T, mutants []mutant, test, env string) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			seeds, from, _ := strings.Cut(m.seeds, "@")
			m.isCaught(t, test, env+"="+seeds, env+"_FROM="+cmp.Or(from, "1"))
		})
	}
}

// isCaught runs a test of the simulation on the mutant, and fails t unless that test reports a
// violation of an expected kind.
func (m mutant) isCaught(t *testing.T, test string, env ...string) {
	t.Helper()
	out, err := m.runTest(t, test, append(env, "STEP=1", "STOP=1")...)
	shown := regexp.MustCompile(`seed \d+: (` + m.caught + `): .*`).Find(out)
	if err == nil || shown == nil {
		t.Fatalf("not caught: %v\n%s", err, out[:min(len(out), 2000)])
	}

	t.Logf("%.200s", shown)
}

// runTest runs a test of the simulation on the mutant in a process of its own. It logs the lines
// about the progress of that process.
func (m mutant) runTest(t *testing.T, test string, env ...string) (output []byte, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), m.buildBinary(t), "-test.run", "^"+test+"$",
		"-test.timeout", "0")
	cmd.Env = append(os.Environ(), append(env, "MUTANT="+m.name)...)
	log := &progressLog{t: t}
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()

	return log.all, err
}

// progressLog keeps the output of a process, and logs its lines about finished seeds; see
// tellProgress.
type progressLog struct {
	t    *testing.T
	all  []byte
	told int // length of the output that was looked at
}

var progressLine = regexp.MustCompile(`(?m)^\d+ of \d+ seeds, .*\n`)

func (l *progressLog) Write(p []byte) (int, error) {
	l.all = append(l.all, p...)
	if at := progressLine.FindIndex(l.all[l.told:]); at != nil {
		l.t.Logf("%s", l.all[l.told+at[0]:l.told+at[1]-1])
		l.told += at[1]
	}
	return len(p), nil
}
