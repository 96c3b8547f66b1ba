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

func stageLook(s weir.Stage) look { return among(stageLooks, s) }

var outcomeLooks = map[weir.Outcome]look{
	weir.OutcomeDelivered:   {"delivered", "check", "good"},
	weir.OutcomeRetry:       {"failed, to be tried again", "again", "warn"},
	weir.OutcomeRejected:    {"rejected", "cross", "bad"},
	weir.OutcomeUnavailable: {"the CMS was unavailable", "pause", "warn"},
	weir.OutcomeNone:        {"cut off, counts for nothing", "slash", "plain"},
}

func outcomeLook(o weir.Outcome) look { return among(outcomeLooks, o) }

var stateLooks = map[string]look{
	"running":   {"running", "again", "info"},
	"done":      {"done", "check", "good"},
	"stopped":   {"stopped", "cross", "bad"},
	"cancelled": {"cancelled", "slash", "plain"},
}

// stateLook is the look of a bulk replay.
func stateLook(state string) look { return among(stateLooks, state) }

// among gives a state's look, and a plain one to a state that has none.
func among[S ~string](looks map[S]look, state S) look {
	if l, ok := looks[state]; ok {
		return l
	}
	return look{string(state), "dots", "plain"}
}
