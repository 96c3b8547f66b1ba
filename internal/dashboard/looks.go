package dashboard

import "weir/internal/weir"

// look is how a state is shown: a word, an icon and a tone, never a colour alone.
type look struct{ Word, Icon, Tone string }

var stageLooks = map[weir.Stage]look{
	weir.Scheduled:  {"scheduled", "clock", "info"},
	weir.Queued:     {"queued", "dots", "plain"},
	weir.Retrying:   {"retrying", "again", "warn"},
	weir.Delivered:  {"delivered", "check", "good"},
	weir.Dead:       {"dead", "cross", "bad"},
	weir.Cancelled:  {"cancelled", "slash", "plain"},
	weir.Superseded: {"superseded", "next", "plain"},
}

func stageLook(s weir.Stage) look {
	if l, ok := stageLooks[s]; ok {
		return l
	}
	return look{string(s), "dots", "plain"}
}

var outcomeLooks = map[weir.Outcome]look{
	weir.OutcomeDelivered:   {"delivered", "check", "good"},
	weir.OutcomeRetry:       {"failed, to be tried again", "again", "warn"},
	weir.OutcomeRejected:    {"rejected", "cross", "bad"},
	weir.OutcomeUnavailable: {"the CMS was unavailable", "pause", "warn"},
	weir.OutcomeNone:        {"cut off, counts for nothing", "slash", "plain"},
}

func outcomeLook(o weir.Outcome) look {
	if l, ok := outcomeLooks[o]; ok {
		return l
	}
	return look{string(o), "dots", "plain"}
}

var stateLooks = map[string]look{
	"running":   {"running", "again", "info"},
	"done":      {"done", "check", "good"},
	"stopped":   {"stopped", "cross", "bad"},
	"cancelled": {"cancelled", "slash", "plain"},
}

// stateLook is the look of a bulk replay.
func stateLook(state string) look {
	if l, ok := stateLooks[state]; ok {
		return l
	}
	return look{state, "dots", "plain"}
}
