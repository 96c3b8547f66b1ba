package limiter

import "time"

const (
	// A 429 multiplies the share by shareAfter429, once in a second: answers to requests that were
	// under way at the same time show one overload.
	shareAfter429 = 0.7
	leastShare    = 0.1
	overloadSpan  = time.Second
	// sharePerSecond is added to the share for each second without a 429, of at most
	// longestRecovery between two writes.
	sharePerSecond  = 0.02
	longestRecovery = 5 * time.Second
	// longestPause bounds the pause that an answer can ask for.
	longestPause = time.Hour
)

// pace is how much slower than the configured rate the slots follow each other, and why. Times are
// those of storage.
type pace struct {
	share     float64 // part of the rate, from leastShare to 1
	reason    string  // why the share is below 1
	slowSince time.Time
	changedAt time.Time // of the share
	// no slot is before; a past time, or zero = no pause
	pausedUntil time.Time
}

// repair makes a share of a row usable that has none, or a damaged one.
func (p *pace) repair() {
	if !(p.share >= leastShare && p.share <= 1) {
		p.share = 1
	}
}

// slowDown lowers the share after a 429.
func (p *pace) slowDown(now time.Time) {
	if p.share < 1 && now.Sub(p.changedAt) < overloadSpan {
		return
	}

	if p.share == 1 {
		p.slowSince = now
	}

	p.share = max(leastShare, p.share*shareAfter429)
	p.reason, p.changedAt = "the CMS answered 429", now
}

// recover raises the share if a second has passed since it changed.
func (p *pace) recover(now time.Time) {
	passed := min(now.Sub(p.changedAt), longestRecovery)
	if p.share == 1 || passed < time.Second {
		return
	}

	p.share += sharePerSecond * passed.Seconds()
	p.changedAt = now
	if p.share >= 1 {
		*p = pace{share: 1, pausedUntil: p.pausedUntil}
	}
}
