package rows

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"weir/internal/storage"
)

// Keys of the rows between head and tail. Each reader of the control rows reads them in the same query.
const (
	HeadKey         = "!head"
	ClaimKey        = "!heir"
	OutboxKey       = "!mail"
	LaneEventsKey   = "!mailed"
	PauseKey        = "!pause"
	KeyPausePrefix  = PauseKey + "_"
	ReplayJobPrefix = "!replay_"
	SumsKey         = "!sums"
	RetentionKey    = "!swept"
	TailKey         = "!tail"
	ControlEnd      = TailKey + "~" // the first key behind the control rows
)

// Prefixes of the keys of all other rows of a lane. Package lane documents each row.
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

// The record of epochs and the record of the search for forgotten bodies are in the partition meta,
// which belongs to no lane.
const (
	MetaPartition = "meta"
	LanesKey      = "lanes"
	ForgottenKey  = "forgotten"
)

// seqDigits is enough for every positive int64.
const seqDigits = 19

// Partition returns the partition of a lane.
func Partition(epoch, lane int) string { return strconv.Itoa(epoch) + "." + strconv.Itoa(lane) }

// SeqPos returns a sequence number with leading zeros, so that numbers sort as strings.
func SeqPos(seq int64) string { return Pad(seq, seqDigits) }

// Pad returns a number with leading zeros, so that numbers that are not negative sort as strings. It
// does not use package fmt, which is slower: the rows of one message need a dozen padded numbers.
func Pad(n int64, digits int) string {
	if n < 0 {
		return "-" + Pad(-n, digits-1)
	}
	const zeros = "0000000000000000000"
	text := strconv.FormatInt(n, 10)
	return zeros[:max(0, digits-len(text))] + text
}

// ParseSeq parses a sequence number as SeqPos returns it.
func ParseSeq(pos string) (int64, error) { return strconv.ParseInt(pos, 10, 64) }

// timeDigits is the number of digits for microseconds up to the year 9999.
const timeDigits = 18

// TimePos returns a time in microseconds with leading zeros, so that times sort as strings.
func TimePos(t time.Time) string { return Pad(t.UnixMicro(), timeDigits) }

// ParseTimePos parses a time as TimePos returns it.
func ParseTimePos(pos string) (time.Time, error) {
	micros, err := strconv.ParseInt(pos, 10, 64)
	return time.UnixMicro(micros).UTC(), err
}

// Hash returns a hash of 128 bits in hex, so that collisions in a lane are practically impossible. It includes
// the length of each part, so ("a", "bc") and ("ab", "c") differ.
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

// PackedKey returns the key of a row of packed deliveries. last is the highest of their sequence numbers.
func PackedKey(last int64) string { return PackedPrefix + SeqPos(last) }

// DeadKey returns the key of the list row of a dead message.
func DeadKey(seq int64) string { return DeadPrefix + SeqPos(seq) }

// BlockKey returns the key of a blocked key's row.
func BlockKey(block string) string { return BlockPrefix + block }

// HeldKey returns the key of the r_ row of a message that is held in a block, at a position in its key's queue.
func HeldKey(block, orderPos string) string { return HeldPrefix + block + "_" + orderPos }

// PrefixEnd returns a key behind all keys that begin with prefix, and before all later keys.
func PrefixEnd(prefix string) string { return prefix + "~" }

// WithPrefix returns a query for the rows of a partition whose keys begin with prefix. Without columns
// it reads all of them.
func WithPrefix(partition, prefix string, columns []string) storage.Query {
	return storage.Query{Partition: partition, From: prefix, To: PrefixEnd(prefix), Columns: columns}
}

// Messages returns a query for messages of a partition. Their sequence numbers are at least from, and less than to.
func Messages(partition string, from, to int64, columns []string) storage.Query {
	return storage.Query{Partition: partition, From: MessageKey(from), To: MessageKey(to), Columns: columns}
}
