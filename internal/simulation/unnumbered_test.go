package simulation_test

import (
	"context"
	"errors"

	"weir/internal/storage"
)

// If storage refuses a transaction, its error usually names one failed operation. Sometimes an
// earlier operation has failed, too, and sometimes the error names no operation. This file
// simulates such errors.

// namesAnother returns err or, in some cases, a changed copy of err. The copy names a later failed
// operation, or none.
func (t ports) namesAnother(op, partition string, ops []storage.Op, err error) error {
	var refused *storage.Error
	if !errors.As(err, &refused) || refused.Index < 0 ||
		!t.p.w.dice.drawChance(t.p.name+" names another "+op, 0.1) {
		return err
	}

	said := *refused
	said.Index = -1
	if t.p.w.dice.drawChance(t.p.name+" names one "+op, 0.5) {
		for i := refused.Index + 1; i < len(ops); i++ {
			if kind, fails := t.wouldFail(partition, ops[i]); fails {
				said.Index, said.Kind = i, kind
			}
		}
	}

	t.p.w.check.addCounts(func(c *counts) { c.NamedNone++ })

	return &said
}

// wouldFail reports whether an operation would fail now if it were alone in a transaction. It also
// returns the kind of the error.
func (t ports) wouldFail(partition string, op storage.Op) (storage.Kind, bool) {
	row, err := t.p.w.account.Table().Get(context.Background(), partition, op.Key)
	switch {
	case op.Kind == storage.Insert:
		return storage.Conflict, err == nil
	case op.IfMatch == "":
		return 0, false
	case err != nil:
		return storage.NotFound, true
	}

	return storage.Precondition, op.IfMatch != storage.AnyETag && op.IfMatch != row.ETag
}
