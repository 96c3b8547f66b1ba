package embedded

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"weir/internal/storage"
	"weir/internal/storage/limits"
	"weir/internal/storage/timelimit"
)

// queue implements storage.Queue and storage.QueueLength. The key of a message is the time from
// which it is visible, and then its number, so the visible messages are the first ones.
type queue struct {
	store *Store
	name  string
}

var _ timelimit.QueuePort = (*queue)(nil)

// message is a stored message. Its pop receipt is its key and Revision, which each dequeue and
// update raises.
type message struct {
	Number       uint64    `json:"number"`
	Text         string    `json:"text"`
	InsertedAt   time.Time `json:"insertedAt"`
	DequeueCount int64     `json:"dequeueCount"`
	Revision     int64     `json:"revision"`
}

func messageKey(visibleAt time.Time, number uint64) []byte {
	key := binary.BigEndian.AppendUint64(nil, uint64(max(visibleAt.UnixNano(), 0)))

	return binary.BigEndian.AppendUint64(key, number)
}

// isVisible reports whether the message with a key is visible.
func isVisible(key []byte, now time.Time) bool {
	return len(key) == 16 && binary.BigEndian.Uint64(key) <= uint64(now.UnixNano())
}

func putMessage(b *bolt.Bucket, key []byte, m message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}

	return b.Put(key, sealBytes(key, text))
}

func readMessage(key, value []byte) (m message, err error) {
	text, err := openBytes(key, value)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}

	if err != nil {
		return m, fmt.Errorf("message of a queue: %w", err)
	}

	return m, nil
}

// dequeued returns a message as the caller of Get gets it.
func (m message) dequeued(key []byte) storage.QueueMessage {
	return storage.QueueMessage{ID: strconv.FormatUint(m.Number, 10), PopReceipt: m.receipt(key),
		Text: m.Text, DequeueCount: m.DequeueCount, InsertedAt: m.InsertedAt.UTC()}
}

func (m message) receipt(key []byte) string {
	return hex.EncodeToString(key) + "." + strconv.FormatInt(m.Revision, 10)
}

func (q *queue) bucket(tx *bolt.Tx) *bolt.Bucket { return tx.Bucket([]byte(q.name)) }

// Put implements storage.Queue.
func (q *queue) Put(ctx context.Context, text string, delay time.Duration) error {
	const op = "queue put"
	if ctx.Err() != nil {
		return endedError(ctx, op)
	}

	if err := limits.CheckMessage(op, text, delay, 0); err != nil {
		return err
	}

	return q.store.committer.do(ctx, &change{op: op, weight: len(text), check: noCheck,
		write: func(tx *bolt.Tx) error {
			b := q.bucket(tx)
			number, err := b.NextSequence()
			if err != nil {
				return err
			}

			now := q.store.now()
			m := message{Number: number, Text: text, InsertedAt: now.UTC().Truncate(time.Second)}

			return putMessage(b, messageKey(now.Add(limits.WholeSeconds(delay)), number), m)
		}})
}

func noCheck(*bolt.Tx) error { return nil }

// Get implements storage.Queue. It writes nothing if no message is visible, because a caller asks
// again and again.
func (q *queue) Get(ctx context.Context, max int,
	hide time.Duration) ([]storage.QueueMessage, error) {
	const op = "queue get"
	if ctx.Err() != nil {
		return nil, endedError(ctx, op)
	}

	if err := limits.CheckMessages(op, max, hide); err != nil {
		return nil, err
	}

	isEmpty := false
	err := q.store.read(ctx, op, func(tx *bolt.Tx) error {
		key, _ := q.bucket(tx).Cursor().First()
		isEmpty = !isVisible(key, q.store.now())
		return nil
	})
	if err != nil || isEmpty {
		return nil, err
	}

	var got []storage.QueueMessage
	err = q.store.committer.do(ctx, &change{op: op, weight: 1 << 10, check: noCheck,
		write: func(tx *bolt.Tx) (err error) {
			got, err = dequeue(q.bucket(tx), max, q.store.now(), limits.WholeSeconds(hide))
			return err
		}})
	if err != nil {
		return nil, err
	}

	return got, nil
}

func dequeue(b *bolt.Bucket, max int, now time.Time,
	hide time.Duration) (got []storage.QueueMessage, err error) {
	var taken []message
	var keys [][]byte
	cursor := b.Cursor()
	for key, value := cursor.First(); isVisible(key, now) &&
		len(keys) < max; key, value = cursor.Next() {
		m, err := readMessage(key, value)
		if err != nil {
			return nil, err
		}
		taken, keys = append(taken, m), append(keys, key)
	}

	for i, m := range taken {
		m.DequeueCount++
		m.Revision++
		hidden := messageKey(now.Add(hide), m.Number)
		if err := moveMessage(b, keys[i], hidden, m); err != nil {
			return nil, err
		}

		got = append(got, m.dequeued(hidden))
	}

	return got, nil
}

// moveMessage gives a message another key.
func moveMessage(b *bolt.Bucket, from, to []byte, m message) error {
	if err := b.Delete(from); err != nil {
		return err
	}

	return putMessage(b, to, m)
}

// Update implements storage.Queue.
func (q *queue) Update(ctx context.Context, in storage.QueueMessage, text string,
	hide time.Duration) (string, error) {
	const op = "queue update"
	if ctx.Err() != nil {
		return "", endedError(ctx, op)
	}

	if err := limits.CheckMessage(op, text, hide, 0); err != nil {
		return "", err
	}

	var receipt string
	err := q.changeDequeued(ctx, op, in, func(b *bolt.Bucket, key []byte, m message) error {
		m.Text = text
		m.Revision++
		hidden := messageKey(q.store.now().Add(limits.WholeSeconds(hide)), m.Number)
		receipt = m.receipt(hidden)

		return moveMessage(b, key, hidden, m)
	})

	return receipt, err
}

// Delete implements storage.Queue.
func (q *queue) Delete(ctx context.Context, in storage.QueueMessage) error {
	return q.changeDequeued(ctx, "queue delete", in,
		func(b *bolt.Bucket, key []byte, _ message) error { return b.Delete(key) })
}

// changeDequeued makes a change of a message if the caller's pop receipt is still valid.
func (q *queue) changeDequeued(ctx context.Context, op string, in storage.QueueMessage,
	write func(b *bolt.Bucket, key []byte, m message) error) error {
	var key []byte
	var m message

	check := func(tx *bolt.Tx) (err error) {
		b := q.bucket(tx)
		keyText, _, _ := strings.Cut(in.PopReceipt, ".")
		key, err = hex.DecodeString(keyText)
		if err != nil || len(key) != 16 || b.Get(key) == nil {
			return newError(op, storage.NotFound, nil)
		}

		m, err = readMessage(key, b.Get(key))
		if err != nil {
			return newError(op, storage.Other, err)
		}
		if m.receipt(key) != in.PopReceipt || in.ID != strconv.FormatUint(m.Number, 10) {
			return newError(op, storage.NotFound, nil)
		}

		return nil
	}

	return q.store.committer.do(ctx, &change{op: op, weight: len(in.Text), check: check,
		write: func(tx *bolt.Tx) error { return write(q.bucket(tx), key, m) }})
}

// Length implements storage.QueueLength.
func (q *queue) Length(ctx context.Context) (n int64, err error) {
	err = q.store.read(ctx, "queue length", func(tx *bolt.Tx) error {
		cursor := q.bucket(tx).Cursor()
		for key, _ := cursor.First(); key != nil; key, _ = cursor.Next() {
			n++
		}
		return nil
	})

	return n, err
}

// showAbandoned makes the messages visible that the process before had dequeued: it has ended, so
// no process works on them. A message that waits for its delay keeps the delay, also if the clock
// was set back since.
func showAbandoned(b *bolt.Bucket, now time.Time) error {
	type move struct {
		from, to []byte
		m        message
	}

	var moves []move

	err := b.ForEach(func(key, value []byte) error {
		m, err := readMessage(key, value)
		if err != nil || isVisible(key, now) {
			return err
		}

		visibleAt := now
		if m.DequeueCount == 0 {
			hiddenUntil := time.Unix(0, int64(binary.BigEndian.Uint64(key)))
			if !m.InsertedAt.After(now) {
				return nil
			}
			visibleAt = now.Add(hiddenUntil.Sub(m.InsertedAt))
		}

		moves = append(moves, move{append([]byte{}, key...), messageKey(visibleAt, m.Number), m})

		return nil
	})

	for _, one := range moves {
		if err == nil {
			err = moveMessage(b, one.from, one.to, one.m)
		}
	}

	return err
}
