package limits

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"time"

	"weir/internal/storage"
)

// maxMessage is Azure's limit for the base64 of a queue message, in bytes.
const maxMessage = 64 << 10

// maxHide is the longest time for which a message can be hidden.
const maxHide = 7 * 24 * time.Hour

// CheckMessage refuses a text of a queue message that is too large, and a time to hide the message
// that is less than least or too long.
func CheckMessage(op, text string, hide, least time.Duration) error {
	if base64.StdEncoding.EncodedLen(len(text)) > maxMessage {
		return &storage.Error{Op: op, Kind: storage.TooLarge, Index: -1}
	}

	if hide < least || hide > maxHide {
		return &storage.Error{Op: op, Kind: storage.Other, Index: -1,
			Err: fmt.Errorf("hidden for %s", hide)}
	}

	return nil
}

// CheckMessages refuses a number of messages to dequeue, and a time to hide them.
func CheckMessages(op string, max int, hide time.Duration) error {
	if max < 1 || max > 32 {
		return &storage.Error{Op: op, Kind: storage.Other, Index: -1,
			Err: fmt.Errorf("%d messages", max)}
	}
	return CheckMessage(op, "", hide, time.Second)
}

var uuidPattern = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// CheckLease refuses an id of a holder that is not a UUID, and a length outside of 15 s to 60 s.
func CheckLease(op, id string, length time.Duration) error {
	var err error
	switch {
	case !uuidPattern.MatchString(id):
		err = errors.New("the id is not a UUID")
	case length < 15*time.Second || length > time.Minute:
		err = fmt.Errorf("the length %s is not from 15s to 1m", length)
	default:
		return nil
	}

	return &storage.Error{Op: op, Kind: storage.Other, Index: -1, Err: err}
}

// WholeSeconds rounds up to whole seconds, in which Azure counts.
func WholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1) / time.Second * time.Second
}
