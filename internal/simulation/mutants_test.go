package simulation_test

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mutant is one rule of the core taken away: text of a source file that stands there once,
// and what replaces it. The program itself has no switches for this; the compiler is given
// the changed file in place of the real one. A mutant without file changes the simulation,
// which looks for its name.
type mutant struct {
	name      string
	file      string // below internal/
	text, new string
	caught    string // kinds of violations that show it
	seeds     string // at most; n@from begins with another seed than 1
}

var mutants = []mutant{
	{"fence off", "lane/writer.go", "IfMatch: w.tail.ETag", "IfMatch: storage.AnyETag", "fence|books", ""},
	{"trust window off", "lease/trust.go", "return l.trustDuration() - l.readClocks().elapsedSince(l.grantedAt)", "return l.trustDuration()", "untrusted|overlap", ""},
	{"blocked keys off", "drain/choose.go", "case r.blocks[key] != nil && e.Seq() >= r.blocks[key].From:", "case false:", "order|repeat|books", ""},
	{"closed keys off", "drain/committer.go", "return c.closed[keyHash] > 0", "return false", "order|repeat|books|stuck", ""},
	{"each holder begins in front of what is refused", "drain/gate.go", "g.failures, g.uneven = max(g.failures, farAfter), evenAfter", "_ = farAfter", "unfair", ""},
	{"refused keys keep the end of the log from its turn", "drain/choose.go", "atEnd := uneven && r.fromEnd", "atEnd := false", "unfair", ""},
	{"long pauses before all had their turn", "drain/probe.go", "r.gate.pause(0, r.Now(), refusedPause)", "r.gate.pause(0, r.Now(), maxDelay)", "unfair", ""},
	{"a pause for what is refused is one for all", "lane/control.go", "if c.HasUntried(now) {", "if false {", "unfair", ""},
	{"the log not read on behind what is refused", "drain/gate.go", "return !g.refusing.IsZero() && g.failures >= farAfter", "return false", "unfair", ""},
	{"what is refused counts at once", "drain/gate.go", "if b.proven || now.Sub(", "if true || now.Sub(", "spared", ""},
	{"what is refused never counts", "drain/gate.go", ">= g.patience {", ">= 1000*g.patience {", "stuck", ""},
	{"patience lost with the process", "drain/gate.go", "t.RefusingSince, t.ProbedBelow = g.refusing, g.probed", "t.RefusingSince, t.ProbedBelow = time.Time{}, g.probed", "stuck|spared", ""},
	{"settle off", "drain/gate.go", "if r.Unanswered {", "if false {", "overlap", ""},
	{"what was given up filed", "lane/append_batch.go", "for sub.ctx.Err() != nil {", "for sub.ctx == nil {", "given up", ""},
	{"calls that hang not ended", "storage/timelimit/timelimit.go", "return context.WithTimeoutCause(ctx, limit, ErrHung)", "_ = limit\n\treturn context.WithCancel(ctx)", "hung", ""},
	{"requests sent again by themselves", "", "", "", "overlap", ""},
	{"a lost answer taken for a failure", "lane/append_batch.go", "return err // sent again unchanged: at most one copy can succeed", "t.ops, t.gather.head = nil, Head{}\n\t\treturn err", "twice", ""},
	{"its own rows taken for another's", "lane/append_batch.go", "err != nil || filed {", "err != nil || filed && false {", "twice|history", ""},
	{"'not there' believed after a timeout", "lane/append_batch.go", "return err // sent again unchanged: at most one copy can succeed",
		"if _, gone := t.a.store.ReadMessage(ctx, t.lane, t.first); storage.Is(gone, storage.NotFound) {\n\t\t\tt.a.mu.Lock()\n\t\t\tt.group = append(t.group, t.gather.waiting...)\n\t\t\tt.gather.waiting, t.ops = nil, nil\n\t\t\tt.a.mu.Unlock()\n\t\t}\n\t\treturn err", "lost|twice", ""},
	{"an outsider writes tail", "", "", "", "outsider", ""},
	{"redirects followed", "cms/exchange.go", "CheckRedirect: noRedirects", "CheckRedirect: func(*http.Request, []*http.Request) error { _ = noRedirects; return nil }", "redirect", ""},
	{"watch and sweep off", "drain/tender.go", "case r.State == Busy:\n\t\tt.restWatching(", "case r.State == Busy:\n\t\tt.await(forever)\n\t\tt.restWatching(", "stuck", ""},
	{"a release not written before it is sent", "drain/release.go", "r.committer.release(ch, func(err error) {\n\t\t\tw.answer <- written{r.Now(), err}\n\t\t\tr.wakeRun()\n\t\t})", "r.committer.add(ch, false)\n\t\tw.answer <- written{r.Now(), nil}", "unreleased|repeat", ""},
	{"a release leaves its due row", "lane/due.go", "c.ops = append(c.ops, storage.Op{Kind: storage.Delete, Key: dueKey(e.DueTime())})", "", "rows|cancelled|unreleased", ""},
	{"what falls due overtakes its key", "drain/release.go", "return max(b.From, b.Wait) <= r.window.readOf(b.KeyHash)", "return true", "order", ""},
	{"places not behind those given", "lane/due.go", "if !at.After(*placed) {", "if false {", "order", ""},
	{"due times not looked at", "drain/release.go", "ch.Release(e, next, &r.placed)", "ch.Release(e, next, &r.placed)\n\t\te.Message.DueAt = r.Now()", "early", ""},
	{"what fell due late put at the end of the log", "drain/ripen.go", "!e.due.At.Before(now) {", "!e.due.At.Before(now) || true {", "order", ""},
	{"what was filed after a moment goes before what fell due then", "drain/release.go", "return !due.After(e.Message.AcceptedAt)", "return false", "order", "3000@5001"},
	{"keys not shut while a release is written", "drain/release.go", "return r.releases.shut[keyHash] || r.releases.awaits[keyHash]", "return r.releases.awaits[keyHash]", "unreleased|order|books|repeat|rows", ""},
	{"what was refused with another forgotten", "drain/release.go", "rs.ripe = append(again, rs.ripe...)", "_ = again", "stuck|late|rows", "2000@6501"},
	{"many released one by one", "drain/release.go", "releaseMax = 20", "releaseMax = 1", "slow|late", ""},
	{"no lead, however long storage takes", "drain/lead.go", "return min(max(l.read.most()+l.write.most(), leadMin), leadMax)", "return 0 * leadMin", "late|unfair|slow", ""},
	{"what is sent not noted for places", "drain/places.go", "r.taken = max(r.taken, e.NextLogSeq())", "_ = e", "order", ""},
	{"a cancellation counted twice", "lane/request.go", "if w.Done {", "if true {", "books", ""},
	{"a cancellation not counted", "lane/request.go", "if w.Done {", "if false {", "books|stuck", ""},
	{"wishes seen and not granted", "drain/wishes.go", "for _, w := range wishes {", "for _, w := range wishes[:0] {", "rows", ""},
	{"offers believed before the log was read", "drain/window.go", "w.caughtUp = w.caughtUp || len(p.entries) < p.rows", "w.caughtUp = true", "repeat|books", ""},
	{"order lost where failures are skipped", "drain/choose.go", "case ahead[key] != nil && 2*e.Seq() >= ahead[key].Rank():", "case ahead[key] != nil && false:", "order", ""},
	{"deliveries behind the dead not noted", "drain/replay.go", "ch.SaveLastDelivery(c.entry)", "", "replayed", ""},
	{"deaths not watched for", "drain/replay.go", "r.watched.add(key)", "", "replayed", ""},
	{"a replay granted without another look", "drain/replay.go", "if !w.Force {", "if false {", "replayed", ""},
	{"a replayed message still counted as dead", "lane/replay.go", "t.Counts.Dead--", "", "books", ""},
	{"a replayed message put behind its key", "lane/replay.go", "Key: heldKey(e.BlockID(), e.place())", "Key: heldKey(e.BlockID(), OrderPos(e.Seq()+1000))", "rows|order", ""},
	{"a retry goes with what was replayed in front of it", "drain/choose.go", "if next := e.NextAttempt(); next.After(r.Now()) && ", "if next := e.NextAttempt(); false && ", "early", "6000"},
	{"pauses not looked at again before a message is sent", "drain/attempt.go", "err != nil || !may {", "err != nil || !may && false {", "paused", ""},
	{"old news of pauses believed", "drain/pauses.go", "for r.Now().Sub(r.pauses.known) > pausesGood {", "for false {", "paused", ""},
	{"what was shelved is overtaken", "drain/pauses.go", "b.LogWaitsFrom, b.IsParked = e.Seq(), true", "_ = 0", "order", ""},
	{"shelved ones in no order", "drain/choose.go", "(b.LogWaitsFrom == 0 || ahead[b.KeyHash]", "(b.LogWaitsFrom >= 0 || ahead[b.KeyHash]", "order", ""},
	{"what was put off is overtaken", "lane/key_queue.go", "b.ReleasedAt.Compare(other.ReleasedAt), ", "", "order", ""},
	{"nobody hears of a resumption", "lane/pause.go", "c.Head.RequestSeq + 1", "c.Head.RequestSeq + 0", "rows|stuck", ""},
	{"bulk replays of killed processes left alone", "replay/runner.go", "r.startJob(row.ID)", "_ = row", "stuck", ""},
	{"what had its turn in a bulk replay forgotten at a takeover", "replay/job_run.go", "w.lanes, w.isResumed =", "w.checkpoint.Next = nil\n\tw.lanes, w.isResumed =", "bulk", ""},
	{"what is open replayed in bulk again", "replay/dead_index.go", " && !p.isOpen(i)", "", "bulk", ""},
	{"occurrences filed without their name", "recur/occurrence.go", `s.Name+"@"+formatDue(due))`, `s.Name[:0]+formatDue(due)[:0])`, "recurring|twice", ""},
	{"a schedule moved on before its message", "recur/occurrence.go", "return receipt, err\n\t}\n\tid :=", "return receipt, nil\n\t}\n\tid :=", "recurring", ""},
	{"a callback not written with the end", "lane/batch.go", "c.callBack(e.Seq(), e.Message.Callback, stage, at)", "", "untold", ""},
	{"what supersedes it forgets the callback of a held message", "lane/key_queue.go", `Callback: v.string("Callback"), `, "", "untold", ""},
	{"an outbox believed empty whatever came meanwhile", "lane/outbox.go", "ops = append(ops, storage.Op{Kind: storage.Delete, Key: mailKey, IfMatch: note})", "ops = append(ops, storage.Op{Kind: storage.Delete, Key: mailKey, IfMatch: storage.AnyETag})", "untold", ""},
	{"a page that is not full taken for the end", "lane/waiting.go", "more && len(rows) < limit; {", "more && len(rows) == 0; {", "rows|repeat|superseded|stuck", ""},
	{"an event dropped at its first failure", "notify/result.go", "if now.Sub(next.FirstTriedAt) >= giveUpAfter {", "if true {", "untold", ""},
	{"retention before its time", "lane/retention_remove.go", "ok && !end.After(now)", "ok && !end.IsZero()", "removed", ""},
	{"idempotency keys left behind", "lane/retention_remove.go", "ops = append(ops, storage.Op{Kind: storage.Delete, Key: idem})", "_ = idem", "left", ""},
	{"a row that storage keeps stops the walk", "lane/retention_remove.go", "t.refused(t.lane, m.seq, err)\n\t\t\treturn nil\n\t\t}\n\t}", "return err\n\t\t}\n\t}", "left", ""},
	{"a body that storage keeps stops the walk", "lane/retention_remove.go", "|| ctx.Err() != nil {\n\t\t\treturn err", "|| true {\n\t\t\treturn err", "left", ""},
	{"forgotten bodies left alone", "lane/retention_forgotten.go", "if info.Marked || len(parts) != 3 {", "if true {", "left", ""},
}

// mutantsSeenFromOutside are caught by the history alone; see histories_test.go.
var mutantsSeenFromOutside = []mutant{
	{"blocked keys off" + outside, "drain/choose.go", "case r.blocks[key] != nil && e.Seq() >= r.blocks[key].From:", "case false:", "history", ""},
	{"closed keys off" + outside, "drain/committer.go", "return c.closed[keyHash] > 0", "return false", "history", ""},
	{"a lost answer taken for a failure" + outside, "lane/append_batch.go", "return err // sent again unchanged: at most one copy can succeed", "t.ops, t.gather.head = nil, Head{}\n\t\treturn err", "history", ""},
}

// mutantsOfLarge are caught in large worlds alone; see sizes_test.go.
var mutantsOfLarge = []mutant{
	{"each ticket stays with its lane", "../functions/process/stay.go", "case s == nil || s.limited.Err() != nil:", "case true:", "tickets", "6"},
	{"a sweep looks at one lane after the other", "lane/delete.go", "const atOnce = 8", "const atOnce = 1", "sweep", "6"},
	{"each outcome in a commit of its own", "drain/attempt.go", "r.committer.waitBelow(ctx, maxUncommitted)", "r.committer.waitBelow(ctx, 1)", "cost|late", "6"},
}

// mutantsOfMoves are caught in worlds in which instances go alone; see moves_test.go.
var mutantsOfMoves = []mutant{
	{"a lane released before the commit", "drain/run.go", "r.committer.add(r.handover(), true)", "_ = r.handover\n\tcancel()", "again|repeat", "12"},
	{"a lane kept without an invocation", "../functions/process/stay.go", "= 45 * time.Second\n\thandOverAt            = 58 * time.Second", "= time.Hour\n\thandOverAt            = time.Hour", "stands|again", "12"},
	{"an invocation stays without a limit", "../functions/process/stay.go", "= 45 * time.Second\n\thandOverAt            = 58 * time.Second\n\tstayLimit             = time.Minute", "= time.Hour\n\thandOverAt            = time.Hour\n\tstayLimit             = time.Hour", "timeout", "12"},
	{"claims ignored", "drain/handover.go", "return claimed && claim.By != d.me", "_ = claim\n\treturn claimed && false", "stands|again", "12"},
	{"an invocation not relieved", "../functions/process/stay.go", "close(s.seat.relieved)", "f.mu.Unlock()\n\t\treturn nil", "stands", "12"},
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

// TestMutants_QuoteTheSource fails within a second if a change of the engine leaves a mutant without the text that it
// replaces.
func TestMutants_QuoteTheSource(t *testing.T) {
	t.Parallel()
	for _, m := range slices.Concat(mutants, mutantsSeenFromOutside, mutantsOfLarge, mutantsOfMoves) {
		if m.file != "" {
			m.readSource(t)
		}
	}
}

func TestMutants_AreCaughtInLargeWorlds(t *testing.T) {
	for _, m := range mutantsOfLarge {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.isCaught(t, "TestLarge", "LARGE="+m.seeds, "LARGE_FROM=1")
		})
	}
}

func TestMutants_AreCaughtInWorldsOfMoves(t *testing.T) {
	for _, m := range mutantsOfMoves {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.isCaught(t, "TestMoves", "MOVES="+m.seeds, "MOVES_FROM=1")
		})
	}
}

// isCaught runs a test of the simulation with the rule taken away.
func (m mutant) isCaught(t *testing.T, test string, env ...string) {
	t.Helper()
	args := []string{"test", "-count=1", "-run", "^" + test + "$"}
	if m.file != "" {
		args = append(args, "-overlay", m.writeOverlay(t))
	}
	cmd := exec.CommandContext(t.Context(), "go", append(args, "weir/internal/simulation")...)
	cmd.Env = append(os.Environ(), append(env, "STEP=1", "MUTANT="+m.name, "STOP=1")...)
	out, err := cmd.CombinedOutput()
	shown := regexp.MustCompile(`seed \d+: (` + m.caught + `): .*`).Find(out)
	if err == nil || shown == nil {
		t.Fatalf("not caught: %v\n%s", err, out[:min(len(out), 2000)])
	}
	t.Logf("%.200s", shown)
}

// readSource returns the path and the text of the file that a mutant changes, in which its quoted text stands once.
func (m mutant) readSource(t *testing.T) (path, source string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", m.file))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), m.text); n != 1 {
		t.Errorf("%s: %q stands in %s %d times; want once", m.name, m.text, m.file, n)
	}
	return path, string(data)
}

// writeOverlay writes the changed file and what tells the compiler of it.
func (m mutant) writeOverlay(t *testing.T) string {
	t.Helper()
	path, source := m.readSource(t)
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for file, data := range map[string][]byte{changed: []byte(strings.Replace(source, m.text, m.new, 1)), overlay: list} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}
