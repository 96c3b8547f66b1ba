package weir_test

import (
	"errors"
	"fmt"
	"testing"

	"weir/internal/weir"
)

func TestProblem_Sentence(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]weir.Problem{
		"filter.stage must be one of queued, retrying": {Path: "filter.stage",
			Message: "must be one of queued, retrying"},
		"reason has more than 500 characters": {Path: "reason",
			Message: "has more than 500 characters"},
		"cron: expected 5 to 6 fields, found 4": {Path: "cron",
			Message: "expected 5 to 6 fields, found 4"},
		"timeZone: this is not the name of a time zone": {Path: "timeZone",
			Message: "this is not the name of a time zone"},
		"./title is required": {Path: "./title", Message: "./title is required"},
		"the body is empty":   {Message: "the body is empty"},
	} {
		if got := p.Sentence(); got != want {
			t.Errorf("%+v: got %q, want %q", p, got, want)
		}
	}
}

func TestFirstRule(t *testing.T) {
	t.Parallel()
	refused := &weir.Error{Kind: weir.Invalid, Contract: "article",
		Problems: []weir.Problem{{Path: "./title", Rule: "max=200"},
			{Path: "./lead", Rule: "required"}}}
	wrapped := fmt.Errorf("file: %w", refused)
	if got := weir.FirstRule(wrapped); got != "./title max" ||
		weir.ContractOf(wrapped) != "article" {
		t.Errorf("got %q of %q, want ./title max of article", got, weir.ContractOf(wrapped))
	}

	for _, err := range []error{errors.New("other"), &weir.Error{Kind: weir.TooLarge}} {
		if got := weir.FirstRule(err); got != "" {
			t.Errorf("%v: got %q, want no rule", err, got)
		}
	}
}
