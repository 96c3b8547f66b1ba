package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/drain"
	"weir/internal/fold"
	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/relane"
	"weir/internal/storage/memory"
	"weir/internal/weir"
)

// TestRelane changes the number of lanes and the folding of keys while instances crash and storage
// fails. Meanwhile the lanes have waiting, dead and scheduled messages. TestRelane often kills the
// command that changes the number, and then runs the command again or undoes the change. The
// environment variable RELANES is the number of seeds, by default 60. RELANES_FROM is the first
// seed, by default 1.
func TestRelane(t *testing.T) {
	seeds, from := readSeeds(t, "RELANES", 60), readNumber(t, "RELANES_FROM", 1)
	crashes, commands, changes := 0, 0, 0
	for seed := from; seed < from+seeds && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			w := newTown(seed)
			ctx, end := context.WithCancel(t.Context())
			w.done = ctx
			w.playTown(ctx)
			w.judgeRun()
			end()
			w.loose.Wait()
			time.Sleep(10 * time.Minute) // each caller that still waits gives up within this time
			for _, p := range w.problems {
				t.Errorf("seed %d: %s", seed, p)
			}

			crashes, commands = crashes+w.crashes, commands+w.commands
			changes += w.newStore().Epoch - 1
		})
	}

	t.Logf("%d seeds: %d crashes of instances, %d runs of the command, %d epochs", seeds, crashes,
		commands, changes)
}

func newTown(seed uint64) *town {
	d := newDice(seed)
	w := &town{dice: d, account: memory.New(time.Now), began: time.Now(),
		trouble: d.drawBetween("trouble", 40*time.Second, 2*time.Minute)}
	w.faults = []float64{0, 0.01, 0.05}[d.drawBelow("faults", 3)]
	w.slots = make([]*life, 1+d.drawBelow("instances", 3))
	from, length := d.drawBetween("down at", 0, w.trouble),
		d.drawBetween("down for", 0, 30*time.Second)
	w.cms = &recorder{active: map[string]string{}, down: func() bool {
		at := time.Since(w.began)
		return !w.isCalm() && at > from && at < from+length
	}}

	return w
}

// playTown starts the instances and the upstreams, changes the number of lanes once or twice, and
// waits for the upstreams.
func (w *town) playTown(ctx context.Context) {
	d := w.dice
	first := epochs.Epoch{Lanes: 1 + d.drawBelow("lanes", 4), Fold: w.drawFold()}
	if _, err := w.newStore().Initialize(ctx, first); err != nil {
		w.addProblem("setup: %v", err)
		return
	}

	for slot := range w.slots {
		w.loose.Go(func() { w.runTown(slot) })
	}

	for i := range 20 + d.drawBelow("letters", 20) {
		spelling := []string{"k", "K", "k\u0301"}[d.drawBelow("spelling", 3)]
		l := &letter{number: i, key: fmt.Sprint(spelling, d.drawBelow("key", 5))}
		l.body = fmt.Sprint([]string{"good ", "good ", "good ", "bad "}[d.drawBelow("body", 4)], i)
		if l.due = d.drawBetween("due", -time.Minute, 3*time.Minute); l.due < 0 {
			l.due = 0
		}

		w.letters = append(w.letters, l)
		start := d.drawBetween("start", 0, w.trouble)
		w.upstream.Go(func() {
			time.Sleep(start)
			w.postLetter(l)
		})
	}

	for range 1 + d.drawBelow("changes", 2) {
		time.Sleep(d.drawBetween("change", 0, w.trouble/2))
		w.changeLanes(ctx, 1+d.drawBelow("new lanes", 4), w.drawFold())
	}

	w.upstream.Wait()
}

// drawFold draws the folding of an epoch.
func (w *town) drawFold() fold.Rules {
	return []fold.Rules{0, fold.Case, fold.All}[w.dice.drawBelow("fold", 3)]
}

// changeLanes runs the command that changes the number of lanes to n, and the folding. Like an
// operator, it repeats the command after a failure, or undoes the change.
func (w *town) changeLanes(ctx context.Context, n int, rules fold.Rules) {
	undo := w.dice.drawChance("undo", 0.3)
	for try := 0; ctx.Err() == nil; try++ {
		p := w.newLife(fmt.Sprintf("c%d", w.commands))
		w.commands++
		if kill := w.dice.drawChance("kill command", 0.7); kill && try < 5 {
			p.killAt = 1 + w.dice.drawBelow("kill at", 60)
		}

		command := relane.Resharder{
			Store: p.store, Leases: p.faults.Leases(w.account.Leases()), Lease: townLease,
			Settle: townSettle,
			Log:    discardLog, Progress: func(string) {},
			Drainer: func(s *lane.Store) relane.Drainer {
				return commandDrainer{p.newDrainer(s), p}
			},
		}

		var err error
		if undo && try > 0 {
			err = command.Undo(p.ctx)
			undo = !errors.Is(err, relane.ErrTooLate)
		} else {
			err = command.Run(p.ctx, relane.Target{Lanes: n, Fold: &rules})
		}

		dead := p.isDead()
		p.end()
		if err == nil && !dead {
			return
		}

		if try > 50 {
			w.addProblem("the change to %d lanes does not come to an end: %v", n, err)
			return
		}

		time.Sleep(w.dice.drawBetween("command again", 0, 20*time.Second))
	}
}

// commandDrainer is the drainer of a command. If the command was killed, Close ends the drainer at
// once.
type commandDrainer struct {
	*drain.Drainer
	p *life
}

func (d commandDrainer) Close(ctx context.Context) error {
	if d.p.isDead() {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		ctx = ended
	}
	return d.Drainer.Close(ctx)
}

// judgeRun waits until no lane has waiting messages. Then it checks the stages of the letters (the
// posted messages), the record of the CMS and the counters of the lanes.
func (w *town) judgeRun() {
	for end := time.Now().Add(15 * time.Minute); !w.atRest(); time.Sleep(time.Second) {
		if time.Now().After(end) {
			w.addProblem("work is left: %s", w.describeLeft())
			return
		}
	}

	time.Sleep(30 * time.Second) // within this time, late requests arrive

	for _, l := range w.letters {
		st, err := w.newStore().Messages().Status(context.Background(), l.id)
		want := weir.Delivered
		if l.body[:3] == "bad" {
			want = weir.Dead
		}

		if err != nil || st.Stage != want || st.Message.Public() != l.id {
			w.addProblem("letter %d, filed as %+v, is %s and should be %s: %+v %v", l.number, l.id,
				st.Stage, want, st.Message.ID, err)
		}
	}

	w.checkLetters()
	w.checkBooks()
}

func (w *town) atRest() bool {
	s := w.newStore()
	for number := range s.Lanes {
		if c, err := s.ReadControl(context.Background(), number); err != nil ||
			c.WaitingCount() != 0 ||
			c.Tail.IsClosed {
			return false
		}
	}

	return true
}

func (w *town) describeLeft() string {
	text := fmt.Sprintf("%+v", w.newStore().EarlierEpochs)
	s := w.newStore()
	for number := range s.Lanes {
		c, err := s.ReadControl(context.Background(), number)
		text += fmt.Sprintf("; lane %d: %+v %v", number, c, err)
	}
	return text
}

// checkLetters checks the record of the CMS:
//   - Each letter is in it, with its body and its key.
//   - For each key, letters without a due time are in the order of the log.
//   - For each key, fences never fall.
//   - A letter is repeated only with a higher fence, and only if no other letter of its key came in
//     between.
//   - Of the keys that an epoch folds into one, letters without a due time are in the order of the
//     log, too.
func (w *town) checkLetters() {
	byID := map[string]*letter{}
	for _, l := range w.letters {
		byID[l.id.String()] = l
	}

	last, fence := map[string]*letter{}, map[string]int64{}
	lastOfItem, rules := map[string]*letter{}, w.readFolds()
	seen := map[*letter]bool{}
	for _, e := range w.cms.log {
		l := byID[e.id]
		if l == nil {
			w.addProblem("the CMS got %q as %s, an id that no upstream got", e.body, e.id)
			continue
		}

		before := last[e.key]
		item := fmt.Sprint(l.id.Epoch, " ", rules[l.id.Epoch].Fold(e.key))
		beforeItem := lastOfItem[item]
		switch {
		case l.due == 0 && beforeItem != nil && beforeItem.due == 0 && l != beforeItem &&
			!filedBefore(beforeItem.id, l.id):
			w.addProblem("letter %d came after letter %d, which has its folded key", l.number,
				beforeItem.number)

		case l.body != e.body || l.key != e.key:
			w.addProblem("letter %d came as %q", l.number, e.body)
		case l == before && e.fence <= fence[e.key], l != before && seen[l]:
			w.addProblem("letter %d came again", l.number)
		case l.due == 0 && before != nil && before.due == 0 && l != before &&
			!filedBefore(before.id, l.id):
			w.addProblem("letter %d came after letter %d", l.number, before.number)
		case e.fence < fence[e.key]:
			w.addProblem("letter %d came under fence %d, after %d", l.number, e.fence, fence[e.key])
		}

		last[e.key], lastOfItem[item], fence[e.key], seen[l] = l, l, e.fence, true
	}

	for _, l := range w.letters {
		if !seen[l] {
			w.addProblem("letter %d never came", l.number)
		}
	}
}

// readFolds returns the folding of each epoch.
func (w *town) readFolds() map[int]fold.Rules {
	s := w.newStore()
	rules := map[int]fold.Rules{s.Epoch: s.Fold}
	for _, e := range s.EarlierEpochs {
		rules[e.Number] = e.Fold
	}
	return rules
}

// filedBefore reports whether a was accepted before b. Both messages have the same key. So in one
// epoch both have the same lane, and their sequence numbers can be compared.
func filedBefore(a, b weir.ID) bool {
	return a.Epoch < b.Epoch || a.Epoch == b.Epoch && a.Seq < b.Seq
}

// checkBooks checks that no lane of any epoch has waiting messages, and that the lanes together
// count each letter once.
func (w *town) checkBooks() {
	meta, err := epochs.Read(context.Background(), w.newStore().Table)
	if err != nil || meta.Step != epochs.StepNone {
		w.addProblem("in the end: %+v %v", meta, err)
		return
	}

	accepted := int64(0)
	for _, e := range append(slices.Clone(meta.Earlier), meta.Open) {
		for number := range e.Lanes {
			c, err := w.newStore().ForEpoch(e).ReadControl(context.Background(), number)
			if err != nil || c.WaitingCount() != 0 || c.Head.IsSealed != (e != meta.Open) ||
				c.Tail.MovedRecorded != (e != meta.Open) {
				w.addProblem("epoch %d lane %d: %+v %v", e.Number, number, c, err)
			}
			accepted += c.Head.Next - 1 - c.Tail.Counts.Moved
		}
	}

	if accepted != int64(len(w.letters)) {
		w.addProblem("%d letters, and the books say %d", len(w.letters), accepted)
	}
}

// relaneMutants are mutants (see the type mutant) of the code that changes the number of lanes.
// Here the field "caught" is a text that a failure of TestRelane must contain.
var relaneMutants = []mutant{
	{name: "a sealed lane takes messages", file: "lane/append_transaction.go",
		text: "if t.pending.head.IsSealed {", new: "if false {", caught: "filed as"},
	{name: "idempotency keys of earlier epochs forgotten", file: "lane/read_message.go",
		text: `if idempotencyKey == "" || len(s.EarlierEpochs) == 0 {`, new: "if true {",
		caught: "was filed as"},
	{name: "fences begin anew", file: "lane/epochend/copy.go", text: "fence := slices.Max(fences)",
		new: "fence := slices.Max(fences) * 0", caught: "under fence"},
	{name: "copies in the lanes of the earlier folding", file: "lane/store.go",
		text: "= e.Number, e.Lanes, e.Fold, nil", new: "= e.Number, e.Lanes, s.Fold, nil",
		caught: "letter [0-9]+"},
	{name: "keys folded for the lane only", file: "lane/keys.go",
		text: `rows.Hash("key", s.Fold.Fold(key))`,
		new:  `rows.Hash("key", key)`, caught: "which has its folded key"},
	{name: "a lane reopened without a look at what fell due", file: "lane/epochend/lanes.go",
		text:   "rows.RequestSeq.Is(c.Head.RequestSeq+1)",
		new:    "rows.RequestSeq.Is(c.Head.RequestSeq)",
		caught: "work is left"},
}

func TestRelane_MutantsAreCaught(t *testing.T) {
	for _, m := range relaneMutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			out, err := m.runTest(t, "TestRelane", "RELANES=400", "RELANES_FROM=1")
			shown := regexp.MustCompile(`(?m)^.*` + m.caught + `.*$`).Find(out)
			if err == nil || shown == nil {
				t.Fatalf("not caught: %v\n%s", err, out[:min(len(out), 2000)])
			}

			t.Logf("%.200s", shown)
		})
	}
}
