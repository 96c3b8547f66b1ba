package rows

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/internal/storage"
)

// Keys of the control rows, and of the markers between them. One query reads all of these rows.
const (
	HeadKey         = "!head"
	ClaimKey        = "!heir"
	OutboxKey       = "!mail"
	LaneEventsKey   = "!mailed"
	PauseKey        = "!pause"
	KeyPausePrefix  = PauseKey + "_"
	ReplayJobPrefix = "!replay_"
	RetentionKey    = "!swept"
	TailKey         = "!tail"
	ControlEnd      = TailKey + "~" // exclusive end of a query for these rows
)

// Prefixes of the keys of all other rows of a lane. The documentation of package lane describes
// these rows.
const (
	BlockPrefix        = "b_"
	RememberedPrefix   = "c_"
	PackedPrefix       = "d_"
	IdempotencyPrefix  = "i_"
	VersionPrefix      = "k_"
	LastDeliveryPrefix = "l_"
	MessagePrefix      = "m_"
	EventPrefix        = "n_"
	CopyPrefix         = "o_"
	HeldPrefix         = "r_"
	DuePrefix          = "s_"
	RequestPrefix      = "w_"
	DeadPrefix         = "x_"
)

// The record of epochs, the record of the search for forgotten bodies and the last recovery of the
// CMS are in the partition meta, which belongs to no lane.
const (
	MetaPartition = "meta"
	LanesKey      = "lanes"
	ForgottenKey  = "forgotten"
	RecoveredKey  = "recovered"
)

// seqDigits is the number of digits of the largest int64.
const seqDigits = 19

// Partition returns the partition of a lane.
func Partition(epoch, lane int) string { return strconv.Itoa(epoch) + "." + strconv.Itoa(lane) }

// SeqPos returns a sequence number with leading zeros, so that numbers sort as strings.
func SeqPos(seq int64) string { return Pad(seq, seqDigits) }

// Pad returns a number with leading zeros, so that numbers sort as strings if none is negative. Pad
// does not use package fmt, which is slower: the rows of one message need a dozen padded numbers.
func Pad(n int64, digits int) string {
	const zeros = "0000000000000000000"
	text := strconv.FormatInt(n, 10)
	if n < 0 { // not by -n, which is negative for the least int64
		return "-" + zeros[:max(0, digits-len(text))] + text[1:]
	}
	return zeros[:max(0, digits-len(text))] + text
}

// ParseSeq parses the sequence number of a message as SeqPos returns it. It refuses any other
// spelling, such as 5 or +5, because a key with it is not the one by which the row is read.
func ParseSeq(pos string) (int64, error) {
	seq, err := ParsePos(pos)
	if err == nil && seq <= 0 {
		err = fmt.Errorf("%d is no sequence number", seq)
	}
	return seq, err
}

// ParsePos parses a sequence number as SeqPos returns it. 0 is the position before the first
// message.
func ParsePos(pos string) (int64, error) {
	seq, err := strconv.ParseInt(pos, 10, 64)
	if err == nil && SeqPos(seq) != pos {
		err = fmt.Errorf("%q is not written as Weir writes numbers", pos)
	}
	return seq, err
}

// timeDigits is the number of digits for microseconds up to the year 9999.
const timeDigits = 18

// TimePos returns a time in microseconds with leading zeros, so that times sort as strings.
func TimePos(t time.Time) string { return Pad(t.UnixMicro(), timeDigits) }

// ParseTimePos parses a time as TimePos returns it.
func ParseTimePos(pos string) (time.Time, error) {
	micros, err := strconv.ParseInt(pos, 10, 64)
	at := time.UnixMicro(micros).UTC()
	if err == nil && (len(pos) != timeDigits || TimePos(at) != pos) {
		err = fmt.Errorf("%q is not written as Weir writes times", pos)
	}

	return at, err
}

// Hash returns a hash of 128 bits in hex, so that collisions in a lane are practically impossible.
// Hash includes the length of each part in the hashed bytes, so that ("a", "bc") and ("ab", "c")
// have different hashes.
func Hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}

	return hex.EncodeToString(h.Sum(nil)[:16])
}

// MessageKey returns the key of the row of a message.
func MessageKey(seq int64) string { return MessagePrefix + SeqPos(seq) }

// SeqOfMessage returns the sequence number in the key of the row of a message.
func SeqOfMessage(key string) (int64, error) {
	return ParseSeq(strings.TrimPrefix(key, MessagePrefix))
}

// PackedKey returns the key of a row of packed deliveries. The argument last is the greatest
// sequence number in the row.
func PackedKey(last int64) string { return PackedPrefix + SeqPos(last) }

// DeadKey returns the key of a dead message's row in the list of dead messages.
func DeadKey(seq int64) string { return DeadPrefix + SeqPos(seq) }

// BlockKey returns the key of a block's row.
func BlockKey(block string) string { return BlockPrefix + block }

// HeldKey returns the key of a held message's row. orderPos is the message's position in its key's
// queue.
func HeldKey(block, orderPos string) string { return HeldPrefix + block + "_" + orderPos }

// PrefixEnd returns the exclusive end of a query for the keys that begin with prefix.
func PrefixEnd(prefix string) string { return prefix + "~" }

// WithPrefix returns a query for the rows of a partition whose keys begin with prefix. If columns
// is nil, the query reads all columns.
func WithPrefix(partition, prefix string, columns []string) storage.Query {
	return storage.Query{Partition: partition, From: prefix, To: PrefixEnd(prefix),
		Columns: columns}
}

// Messages returns a query for the messages of a partition with sequence numbers from "from" up to,
// but not including, "to". If columns is nil, the query reads all columns.
func Messages(partition string, from, to int64, columns []string) storage.Query {
	return storage.Query{Partition: partition, From: MessageKey(from), To: MessageKey(to),
		Columns: columns}
}
