package upstream

import (
	"crypto/sha256"

	"weir/internal/weir"
)

// maxRemembered limits the charges that one quota remembers. A charge takes about 100 bytes, so a
// quota takes 1 MiB at most. RabbitMQ and the inbox have a few hundred submissions under way at a
// time, and a post that is repeated after 503 comes again within seconds; 10,000 are the posts of
// several minutes in which storage answers none. If more are remembered, one of them is forgotten,
// and its repeat is charged again.
const maxRemembered = 10_000

// submissionID identifies a submission: its ordering key and its idempotency key.
type submissionID [sha256.Size]byte

// charge is one message that was taken from a quota for a submission.
type charge struct {
	quota *quota
	day   string
	// id is the submission; nil = the submission has no idempotency key, so each try of it is
	// another message.
	id *submissionID
	// isRemembered means that an earlier try of the submission took the message, and that its
	// answer was lost.
	isRemembered bool
}

// settle gives the message back to the quota if it is certain that the submission's tries have
// stored none. If it is not known, settle remembers the charge for the next try of the submission.
func (c *charge) settle(result weir.AppendResult) {
	switch {
	case result == weir.Appended:
	case result == weir.AppendRepeated &&
		c.isRemembered: // the earlier try stored the message, and is charged
	case result == weir.AppendUnknown && c.id == nil:
	case result == weir.AppendUnknown, c.isRemembered:
		c.quota.remember(c)
	default:
		c.quota.giveBack(c.day, 1)
	}
}

// newSubmissionID returns nil if the submission has no name.
func newSubmissionID(submission string) *submissionID {
	if submission == "" {
		return nil
	}
	id := submissionID(sha256.Sum256([]byte(submission)))
	return &id
}

// recall removes and returns the remembered charge of a submission; nil = none is remembered for
// the present day.
func (q *quota) recall(id *submissionID) *charge {
	if id == nil {
		return nil
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	q.beginDay()
	if !q.remembered[*id] {
		return nil
	}

	delete(q.remembered, *id)

	return &charge{quota: q, day: q.day, id: id, isRemembered: true}
}

// remember keeps a charge for the next try of its submission. If one is kept already, the two tries
// can have stored only one message, so the charge is given back.
func (q *quota) remember(c *charge) {
	q.mu.Lock()
	defer q.mu.Unlock()

	switch {
	case q.day != c.day:
	case q.remembered[*c.id]:
		q.addReserved(1)
	default:
		for other := range q.remembered {
			if len(q.remembered) < maxRemembered {
				break
			}
			delete(q.remembered, other)
		}

		q.remembered[*c.id] = true
	}
}
