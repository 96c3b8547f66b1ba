package simulation_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/functions/write"
	"weir/internal/audit"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/timelimit"
	"weir/internal/weir"
)

// In a world of audits, operators' changes are entries of the audit log, and each erasure goes
// through functions/write, which also redacts the log. The keys of messages begin each other, such
// as k1 and k10, and stand in reasons.

// auditing has the settings of a world of audits. The zero value means that there is no audit log.
type auditing struct {
	isOn    bool
	entries int // number of entries that operators make
}

func drawAudits(d *dice) settings {
	s := drawSettings(d)
	s.audits = auditing{true, 20 + d.drawBelow("entries", 40)}
	s.erasers, s.messages, s.keys, s.crowd = 3+d.drawBelow("more erasers", 4),
		min(s.messages, 40), 12, 0
	return s
}

// TestAudits runs seeds of worlds of audits. The environment variable AUDITS is the number of
// seeds, by default 30. AUDITS_FROM is the first seed, by default 1.
func TestAudits(t *testing.T) {
	sum := runWorlds(t, "AUDITS", 30, drawAudits)
	if sum.Redacted == 0 && !t.Failed() {
		t.Errorf("got no redacted entry in all seeds, want some")
	}
}

// audited is an entry as it was made.
type audited struct {
	subject string
	format  string   // the detail, with %q for each key
	keys    []string // the keys in the detail
}

// detail returns the entry's detail with the given keys.
func (a audited) detail(keys []string) string {
	quoted := make([]any, len(keys))
	for i, key := range keys {
		quoted[i] = key
	}
	return fmt.Sprintf(a.format, quoted...)
}

// erasure is a request to erase a message in a world of audits.
type erasure struct {
	id, key     string
	stored      map[int]bool // numbers of the entries that storage had when the request was made
	isConfirmed bool         // a process has answered that the message is erased
}

// startAudits lets operators make entries: about a message, about keys, and about both.
func (w *world) startAudits(ctx context.Context) {
	for n := range w.audits.entries {
		name := fmt.Sprint("entry ", n)
		at := w.dice.drawBetween(name, time.Second, w.trouble+20*time.Second)
		w.upstream.Go(func() {
			time.Sleep(at)
			p := w.slots[w.dice.drawBelow(name+" at", len(w.slots))].currentProcess()
			e := w.drawEntry(name)
			w.check.noteEntry(n, e)
			_, _ = askProcess(ctx, p, name, func(ctx context.Context) (struct{}, error) {
				p.audit.Record(ctx,
					audit.Entry{Action: "change", Subject: e.subject, Detail: e.detail(e.keys),
						Invocation: strconv.Itoa(n)})
				return struct{}{}, nil
			})
		})
	}
}

func (w *world) drawEntry(name string) audited {
	key := func(which string) string {
		return fmt.Sprint("k",
			w.dice.drawBelow(name+which, w.keys))
	}

	e := audited{keys: []string{key(" key")}}
	if ids := w.check.listFiled(); len(ids) > 0 && w.dice.drawChance(name+" subject", 0.4) {
		e.subject = ids[w.dice.drawBelow(name+" of", len(ids))].String()
	}

	switch w.dice.drawBelow(name+" kind", 4) {
	case 0:
		e.format = `{"key":%q,"reason":"k1 and k10, ticket 1"}`
	case 1:
		e.format = `{"filter":{"keyPrefix":%q},"reason":"` + key(" reason") + `"}`
	case 2:
		e.format, e.keys = `{"keys":[%q,%q]}`, append(e.keys, key(" other"))
	case 3:
		e.format, e.keys = `{"reason":"`+key(" reason")+`"}`, nil
	}

	return e
}

func (c *checker) noteEntry(number int, e audited) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = map[int]audited{}
	}
	c.entries[number] = e
}

// eraseByRequest erases a message as functions/write does for a client.
func (p *process) eraseByRequest(ctx context.Context, id weir.ID) (weir.Status, error) {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost,
		"/api/messages/"+id.String()+"/erase", nil)
	r.SetPathValue("id", id.String())
	answer := httptest.NewRecorder()
	(&write.Erase{Messages: p.store.Messages(), Log: p.store.Requests(), Audit: p.audit,
		Waker: noRinger{}, Logger: discardLog}).ServeHTTP(answer, r)
	kinds := map[int]weir.Kind{http.StatusConflict: weir.Conflict,
		http.StatusNotFound: weir.NotFound, http.StatusServiceUnavailable: weir.Unavailable}
	kind, isExpected := kinds[answer.Code]
	switch {
	case answer.Code == http.StatusOK:
		return weir.Status{}, nil
	case !isExpected:
		p.w.check.reportViolation("redacted", "an erasure was answered %d: %s", answer.Code,
			answer.Body)
	}

	return weir.Status{}, &weir.Error{Kind: kind, Op: "erase", Message: answer.Body.String()}
}

type noRinger struct{}

func (noRinger) Ring(int) {}

// noteErasure records a request to erase a message, with the entries that storage has at that time.
func (c *checker) noteErasure(id weir.ID, key string) *erasure {
	if !c.w.audits.isOn {
		return nil
	}

	e := &erasure{id: id.String(), key: key, stored: map[int]bool{}}
	for _, one := range c.w.readEntries() {
		number, _ := strconv.Atoi(one.Invocation)
		e.stored[number] = true
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.erasures = append(c.erasures, e)

	return e
}

func (c *checker) confirmErasure(e *erasure) {
	if e != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		e.isConfirmed = true
	}
}

// readEntries reads the audit log from storage, without faults.
func (w *world) readEntries() (entries []audit.Entry) {
	l := audit.Log{Table: w.account.Table(), Now: time.Now, Logger: discardLog}
	for q := (audit.Query{Limit: 500}); ; {
		page, err := l.Read(context.Background(), q)
		if err != nil {
			w.check.reportViolation("setup", "audit log: %v", err)
			return nil
		}

		entries = append(entries, page.Entries...)
		if q.Continue = page.Continue; q.Continue == "" {
			return entries
		}
	}
}

// eraseAgain asks to erase each final message three times, now that storage has no faults. Each
// erasure must succeed. Then it checks the audit log. It returns false after a violation.
func (w *world) eraseAgain(ctx context.Context) bool {
	if !w.audits.isOn {
		return true
	}

	for _, id := range w.check.listFiled() {
		if w.dice.drawChance("erased at rest", 0.5) || w.check.isErasing(id) {
			for range 3 {
				w.eraseMessage(ctx, "eraser at rest", id)
			}
			w.check.checkIsErased(id)
		}
	}

	w.check.checkEntries()
	return w.check.hasNoViolation()
}

// isErasing reports whether an operator has asked to erase the message.
func (c *checker) isErasing(id weir.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.laneOf(id.Lane).log[id.Seq-1].erasing
}

// checkIsErased checks that a final message is erased after an operator has asked for it.
func (c *checker) checkIsErased(id weir.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.laneOf(id.Lane).log[id.Seq-1]
	if !f.erased && !f.gone && c.stageOf(f).Final() && !f.isRequested() {
		c.addViolation("redacted", "seq %d of lane %d is final, and was not erased at rest",
			f.id.Seq, f.id.Lane)
	}
}

// checkEntries checks each entry: a confirmed erasure has removed its content from the entries that
// storage had before the erasure, no other entry has changed, and an entry names the erasures that
// have changed it.
func (c *checker) checkEntries() {
	entries := c.w.readEntries()
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, e := range entries {
		number, _ := strconv.Atoi(e.Invocation)
		c.checkEntry(number, e, c.entries[number])
	}
}

func (c *checker) checkEntry(number int, e audit.Entry, made audited) {
	original := made.detail(made.keys)
	if e.Detail != original {
		c.counts.Redacted++
	}

	if e.Detail == original != (e.RedactedBy == "") ||
		(e.RedactedBy == "") != e.RedactedAt.IsZero() {
		c.addViolation("redacted", "entry %d was %s, is %s, and says that it was redacted by %q",
			number, original, e.Detail, e.RedactedBy)
	}

	for id := range strings.FieldsSeq(e.RedactedBy) {
		if !slices.ContainsFunc(c.erasures, func(x *erasure) bool {
			return x.id == id && (id == made.subject || slices.Contains(made.keys, x.key))
		}) {
			c.addViolation("redacted", "entry %d says that the erasure of %s has redacted it",
				number, id)
		}
	}

	isAsked, isDue := c.erasuresOf(number, func(x *erasure) bool { return x.id == made.subject })
	if e.Detail == "" && isAsked {
		return
	}

	if isDue {
		c.addViolation("redacted", "entry %d is of an erased message, and has %s", number, e.Detail)
	}

	if !slices.Contains(c.allowedDetails(number, made), e.Detail) {
		c.addViolation("redacted", "entry %d was %s, and is %s", number, original, e.Detail)
	}
}

// erasuresOf reports whether one of the matching erasures was asked for, and whether one of them
// was confirmed and must have changed the entry.
func (c *checker) erasuresOf(number int, matches func(*erasure) bool) (isAsked, isDue bool) {
	for _, x := range c.erasures {
		if matches(x) {
			isAsked, isDue = true, isDue || x.isConfirmed && x.stored[number]
		}
	}
	return isAsked, isDue
}

// allowedDetails returns the details that the erasures of keys allow.
func (c *checker) allowedDetails(number int, made audited) []string {
	allowed := [][]string{nil}
	for _, key := range made.keys {
		isAsked, isDue := c.erasuresOf(number, func(x *erasure) bool { return x.key == key })
		var next [][]string
		for _, keys := range allowed {
			if !isDue {
				next = append(next, append(slices.Clip(keys), key))
			}
			if isAsked {
				next = append(next, append(slices.Clip(keys), lane.ErasedKey(key)))
			}
		}

		allowed = next
	}

	var details []string
	for _, keys := range allowed {
		details = append(details, made.detail(keys))
	}

	return details
}

// newAuditLog returns the audit log of the process.
func (p *process) newAuditLog() *audit.Log {
	return &audit.Log{Table: timelimit.Table(auditPort{p}), Keep: keepDeadFor, Now: p.now,
		Logger: discardLog}
}

// auditPort is a process's access to the audit log. Its operations have names without the random
// end of an entry's key.
type auditPort struct{ p *process }

// entryTime is the length of the time in the key of an entry.
const entryTime = 19

func (a auditPort) Get(ctx context.Context, partition, key string) (row storage.Row, err error) {
	err = a.p.doOperation(ctx, "get audit "+key[:min(len(key), entryTime)], false,
		func() (err error) {
			row, err = a.p.w.account.Table().Get(context.Background(), partition, key)
			return err
		})
	return row, err
}

func (a auditPort) Range(ctx context.Context, q storage.Query) (page storage.Page, err error) {
	err = a.p.doOperation(ctx, "range audit "+q.From, false, func() (err error) {
		page, err = a.p.w.account.Table().Range(context.Background(), q)
		return err
	})
	return page, err
}

func (a auditPort) Transact(ctx context.Context, partition string,
	ops []storage.Op) ([]storage.ETag, error) {
	answer := make(chan []storage.ETag, 2)
	kept := copyOps(ops)
	err := a.p.doOperation(ctx, "transact audit "+ops[0].Key[:min(len(ops[0].Key), entryTime)],
		true, func() error {
			etags, err := a.p.w.account.Table().Transact(context.Background(), partition, kept)
			if err == nil {
				answer <- etags
			}
			return err
		})
	if err != nil {
		return nil, err
	}

	return <-answer, nil
}
