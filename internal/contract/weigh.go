package contract

import "bytes"

// The memory that parsing one body takes, estimated from above. Text is copied when it is
// decoded and when it goes into the tree; an element, or anything else that "<" begins, and
// an attribute cost the same however few bytes they are written in.
const (
	bytesPerByte      = 4
	bytesPerTag       = 160
	bytesPerAttribute = 256
)

// weigh returns the most bytes of memory that parsing a body takes. It counts bytes, in any
// encoding, so it may count a character too often, and never too rarely.
func weigh(body []byte) int64 {
	tags, attributes := bytes.Count(body, []byte("<")), bytes.Count(body, []byte("="))
	return bytesPerByte*int64(len(body)) + bytesPerTag*int64(tags) + bytesPerAttribute*int64(attributes)
}
