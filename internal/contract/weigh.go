package contract

import "bytes"

// Upper estimates of the memory that parsing takes. Text is copied when it is decoded and when it
// goes into the tree. Each "<" (an element, a comment, an instruction) and each attribute has a
// fixed cost, however few bytes it takes in the body.
const (
	bytesPerByte      = 4
	bytesPerTag       = 160
	bytesPerAttribute = 256
)

// estimateMemory returns an upper bound, in bytes, of the memory that parsing a body takes. It counts
// bytes, so in some encodings it counts a character more than once, but never too rarely.
func estimateMemory(body []byte) int64 {
	tags, attributes := bytes.Count(body, []byte("<")), bytes.Count(body, []byte("="))
	return bytesPerByte*int64(len(body)) + bytesPerTag*int64(tags) + bytesPerAttribute*int64(attributes)
}
