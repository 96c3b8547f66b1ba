package lane

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"

	"weir/internal/weir"
)

// Row keys of a lane; doc.go says what each row is for.
const (
	headKey       = "!head"
	tailKey       = "!tail"
	sweptKey      = "!swept"
	controlAfter  = "!tail~" // first key behind the control rows
	prefixBlock   = "b_"
	prefixIdem    = "i_"
	prefixMessage = "m_"
	prefixHeld    = "r_"
	prefixDead    = "x_"
	prefixFirsts  = "d_"
	prefixLatest  = "k_"
	prefixDue     = "s_"
	prefixWish    = "w_"
	prefixFrom    = "o_"
	prefixLast    = "l_"
	prefixMail    = "n_"
	mailKey       = "!mail" // a note, as is the next
	mailedKey     = "!mailed"
)

// seqDigits is enough for every positive int64.
const seqDigits = 19

// OrderPos is a message's position among the held ones of its key: it sorts as a string.
// A message that came through the log has its padded sequence number as place.
func OrderPos(seq int64) string { return padded(seq, seqDigits) }

// padded returns a number with leading zeros, so that those that are not negative sort as strings.
// It does without package fmt because each message asks for a dozen places.
func padded(n int64, digits int) string {
	if n < 0 {
		return "-" + padded(-n, digits-1)
	}
	const zeros = "0000000000000000000"
	text := strconv.FormatInt(n, 10)
	return zeros[:max(0, digits-len(text))] + text
}

func messageKey(seq int64) string          { return prefixMessage + OrderPos(seq) }
func firstsKey(last int64) string          { return prefixFirsts + OrderPos(last) }
func deadKey(seq int64) string             { return prefixDead + OrderPos(seq) }
func blockKey(block string) string         { return prefixBlock + block }
func heldKey(block, place string) string   { return prefixHeld + block + "_" + place }
func partition(epoch, lane int) string     { return strconv.Itoa(epoch) + "." + strconv.Itoa(lane) }
func parseSeq(place string) (int64, error) { return strconv.ParseInt(place, 10, 64) }

func seqOfMessageKey(key string) (int64, error) {
	return parseSeq(strings.TrimPrefix(key, prefixMessage))
}

// after gives the first key behind all keys that begin with prefix.
func after(prefix string) string { return prefix + "~" }

// hash shortens parts to 128 bits in hex: too many for two of a lane ever to collide.
// Each part goes in with its length, so ("a", "bc") and ("ab", "c") differ.
func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// KeyHash names an ordering key in row keys.
func KeyHash(key string) string { return hash("key", key) }

// blockOf names the block a failed message of this key makes: the key's own, or, when the
// later ones may go ahead, one for this message alone.
func blockOf(key string, seq int64, skip bool) string {
	if skip {
		return hash("skip", key, OrderPos(seq))
	}
	return KeyHash(key)
}

// latestHash names what supersedes each other: the messages of one key and one contract.
func latestHash(m *weir.Message) string { return hash("latest", m.Key, m.Contract) }

func idemKey(key, idempotencyKey string) string {
	return prefixIdem + hash("idempotency", key, idempotencyKey)
}

// Of gives the lane of an ordering key. It must never change for a number of lanes.
func Of(key string, lanes int) int {
	sum := sha256.Sum256([]byte(key))
	return int(binary.BigEndian.Uint64(sum[:8]) % uint64(lanes))
}

// LeaseName is the name of the lane's lease.
func (s *Store) LeaseName(lane int) string { return "lane-" + s.partition(lane) }
