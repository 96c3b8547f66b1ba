package upstream

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/internal/storage"
	"weir/internal/weir"
)

// Scheme is the way in which an upstream signs its requests.
type Scheme string

// The schemes.
const (
	GitHub Scheme = "github" // X-Hub-Signature-256: HMAC-SHA256 over the body
	// webhook-signature: HMAC-SHA256 over id, timestamp and body
	StandardWebhooks Scheme = "standard"
)

// Definition describes an upstream.
type Definition struct {
	Name       string
	Keys       []string      // each key is valid; none = the upstream sends no key
	Scheme     Scheme        // "" = the upstream does not sign
	Secrets    [][]byte      // a signature with any of the secrets is valid
	Tolerance  time.Duration // largest difference between now and a timestamp of StandardWebhooks
	Contracts  []string      // none = all contracts
	Rate       Rate          // zero = no limit
	DailyQuota int64         // number of messages in a day (UTC); 0 = no limit
}

// Set has the upstreams of the settings. It is safe for concurrent use. A nil *Set stands for
// settings without upstreams; only its method ReturnReserved can be called.
type Set struct {
	members []*member
	now     func() time.Time
	observe Observer
}

// Observer is told of each message or batch that a limit refused. The parameter limit is "rate" or
// "dailyQuota". Limited must be safe for concurrent use.
type Observer interface{ Limited(upstream, limit string) }

// member is an upstream with the state of its limits.
type member struct {
	Definition
	keys   [][sha256.Size]byte
	bucket *bucket // nil = the upstream has no rate
	quota  *quota  // nil = the upstream has no daily quota
}

// NewSet returns a Set of the defined upstreams, whose names must differ. The table stores the
// daily quotas, and can be nil if no upstream has a daily quota.
func NewSet(definitions []Definition, table storage.Table, now func() time.Time,
	observe Observer) *Set {
	s := &Set{now: now, observe: observe}
	for _, d := range definitions {
		m := &member{Definition: d}
		for _, key := range d.Keys {
			m.keys = append(m.keys, sha256.Sum256([]byte(key)))
		}

		if d.Rate.Count > 0 {
			m.bucket = newBucket(d.Rate)
		}

		if d.DailyQuota > 0 {
			m.quota = newQuota(d.Name, d.DailyQuota, table, now)
		}

		s.members = append(s.members, m)
	}

	return s
}

func (s *Set) findMember(name string) *member {
	for _, m := range s.members {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// findByKey returns the upstream of a key, or nil. It compares all keys even after a match, so that
// its duration tells a caller nothing about the keys.
func (s *Set) findByKey(key string) (found *member) {
	given := sha256.Sum256([]byte(key))
	for _, m := range s.members {
		for _, known := range m.keys {
			if subtle.ConstantTimeCompare(given[:], known[:]) == 1 {
				found = m
			}
		}
	}

	return found
}

// CheckContract returns a Forbidden error if the named upstream is not allowed to send messages of
// the contract, or does not exist.
func (s *Set) CheckContract(name, contract string) error {
	m := s.findMember(name)
	if m == nil {
		return unknownUpstreamError(name)
	}
	if len(m.Contracts) == 0 || slices.Contains(m.Contracts, contract) {
		return nil
	}

	message := fmt.Sprintf("the upstream %s may send messages of %s, and this one is of %s", name,
		strings.Join(m.Contracts, ", "), contract)

	return &weir.Error{Kind: weir.Forbidden, Op: "upstream", Message: message,
		Problems: []weir.Problem{{Path: "/", Rule: "contract", Message: message}}}
}

// unknownUpstreamError returns the error for a name that the settings do not have. An example is
// the upstream of a batch that Weir accepted before the upstream was removed from the settings.
func unknownUpstreamError(name string) error {
	return &weir.Error{Kind: weir.Forbidden, Op: "upstream",
		Message: "the settings have no upstream " + shortenName(name)}
}

// Admit takes a token of an upstream's rate and a message of the upstream's daily quota. Its errors
// are:
//   - Limited if the rate or the daily quota is used up.
//   - Forbidden if no upstream has the name.
//   - Unavailable if the quota's row cannot be read or written.
//
// Call settle with the result of the append; settle is never nil. If the append stored no message,
// settle returns the message to the daily quota. If that is not known, the message stays charged,
// and the next Admit of the same submission takes no other. The parameter submission names the
// submission; empty = each call is a message of its own. settle does not return the token, because
// the rate limits requests.
func (s *Set) Admit(ctx context.Context, name, submission string) (settle func(weir.AppendResult),
	err error) {
	keep := func(weir.AppendResult) {}
	m := s.findMember(name)
	if m == nil {
		return keep, unknownUpstreamError(name)
	}

	if m.bucket != nil {
		if wait := m.bucket.takeToken(s.now()); wait > 0 {
			s.observe.Limited(name, "rate")
			return keep, limitError("rate", wait, "the upstream %s sends more than its rate of %s",
				name, m.Rate)
		}
	}

	if m.quota == nil {
		return keep, nil
	}

	id := newSubmissionID(submission)
	if c := m.quota.recall(id); c != nil {
		return c.settle, nil
	}

	day, err := s.takeFromQuota(ctx, m, 1)
	if err != nil {
		return keep, err
	}

	return (&charge{quota: m.quota, day: day, id: id}).settle, nil
}

// AdmitBatch takes the messages of a batch from an upstream's daily quota: all of them, or none.
// The parameter count is the number of these messages. AdmitBatch returns the same errors as Admit.
// It ignores the rate, because Weir appends the parts of a batch at its own pace.
func (s *Set) AdmitBatch(ctx context.Context, name string, count int) error {
	m := s.findMember(name)
	if m == nil {
		return unknownUpstreamError(name)
	}
	if m.quota == nil {
		return nil
	}

	_, err := s.takeFromQuota(ctx, m, int64(count))

	return err
}

// takeFromQuota takes count messages of the daily quota of m, and returns their day.
func (s *Set) takeFromQuota(ctx context.Context, m *member, count int64) (day string, err error) {
	day, left, err := m.quota.takeMessages(ctx, count)
	if err != nil || day != "" {
		return day, err
	}

	s.observe.Limited(m.Name, "dailyQuota")
	text := "the upstream %s has used its daily quota of %d messages; the next day begins at 00:00 UTC"
	args := []any{m.Name, m.DailyQuota}
	if left > 0 {
		text = "the upstream %s has %d messages left of its daily quota of %d, and this batch has %d"
		args = []any{m.Name, left, m.DailyQuota, count}
	}

	now := s.now().UTC()

	return "", limitError("dailyQuota", now.Truncate(24*time.Hour).Add(24*time.Hour).Sub(now),
		text, args...)
}

// limitError returns a Limited error. The parameter wait is the time until the limit admits
// messages again.
func limitError(limit string, wait time.Duration, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	return &weir.Error{Kind: weir.Limited, Op: "upstream", Message: message, RetryAfter: wait,
		Problems: []weir.Problem{{Rule: limit, Message: message}}}
}

// ReturnReserved gives back the unused part of the daily quotas that this process has reserved. A
// process reserves several messages of a quota at once, before they arrive. Call ReturnReserved at
// shutdown, when no more messages arrive. If ReturnReserved fails, the upstreams can send fewer
// messages on this day.
func (s *Set) ReturnReserved(ctx context.Context) error {
	if s == nil {
		return nil
	}

	var failed error
	for _, m := range s.members {
		if m.quota != nil {
			failed = errors.Join(failed, m.quota.returnReserved(ctx))
		}
	}

	return failed
}

// shortenName shortens a name for an error message, because a caller can send a name of any length.
func shortenName(name string) string {
	const most = 60
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}
