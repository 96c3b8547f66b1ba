package simulation_test

import (
	"errors"

	"weir/internal/storage"
)

// namesNone returns the refusal of a transaction as storage may word it, too: without the number
// of the operation that it failed at.
func (t ports) namesNone(op string, err error) error {
	var refused *storage.Error
	if !errors.As(err, &refused) || refused.Index < 0 || !t.p.w.dice.chance(t.p.name+" names none "+op, 0.1) {
		return err
	}
	said := *refused
	said.Index = -1
	t.p.w.check.count(func(c *counts) { c.NamedNone++ })
	return &said
}
