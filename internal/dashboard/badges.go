package dashboard

import (
	"weir/internal/weir"
	"weir/internal/wire"
)

// badge displays a state as a word and an icon, in the colour that Tone names.
type badge struct{ Word, Icon, Tone string }

var stageBadges = map[weir.Stage]badge{
	weir.Scheduled:  {"scheduled", "clock", "info"},
	weir.Queued:     {"queued", "dots", "plain"},
	weir.Retrying:   {"retrying", "again", "warn"},
	weir.Delivered:  {"delivered", "check", "good"},
	weir.Dead:       {"dead", "cross", "bad"},
	weir.Cancelled:  {"cancelled", "slash", "plain"},
	weir.Superseded: {"superseded", "next", "plain"},
	weir.Discarded:  {"discarded", "slash", "plain"},
}

func stageBadge(s weir.Stage) badge { return badgeFor(stageBadges, s) }

var outcomeBadges = map[weir.Outcome]badge{
	weir.OutcomeDelivered:   {"delivered", "check", "good"},
	weir.OutcomeRetry:       {"failed, to be tried again", "again", "warn"},
	weir.OutcomeRejected:    {"rejected", "cross", "bad"},
	weir.OutcomeUnavailable: {"the CMS was unavailable", "pause", "warn"},
	weir.OutcomeNone:        {"cut off, counts for nothing", "slash", "plain"},
}

func outcomeBadge(o weir.Outcome) badge { return badgeFor(outcomeBadges, o) }

var jobStateBadges = map[wire.JobState]badge{
	wire.JobRunning:   {"running", "again", "info"},
	wire.JobDone:      {"done", "check", "good"},
	wire.JobStopped:   {"stopped", "cross", "bad"},
	wire.JobCancelled: {"cancelled", "slash", "plain"},
}

func jobStateBadge(state wire.JobState) badge { return badgeFor(jobStateBadges, state) }

var batchStateBadges = map[wire.BatchState]badge{
	wire.BatchChecking:  {"checking", "again", "info"},
	wire.BatchFiling:    {"filing", "again", "info"},
	wire.BatchFiled:     {"filed", "check", "good"},
	wire.BatchRejected:  {"rejected", "cross", "bad"},
	wire.BatchCancelled: {"cancelled", "slash", "plain"},
}

func batchStateBadge(state wire.BatchState) badge { return badgeFor(batchStateBadges, state) }

// badgeFor returns the badge of a state. For an unknown state it returns a plain badge with the
// state's name.
func badgeFor[S ~string](looks map[S]badge, state S) badge {
	if l, ok := looks[state]; ok {
		return l
	}
	return badge{string(state), "dots", "plain"}
}
