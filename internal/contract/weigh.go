package contract

import "bytes"

// Upper estimates of the memory that parsing takes. Parsing copies a text twice: once to decode it, and once into the
// tree. Each "<" (an element, a comment, an instruction) and each attribute has a fixed cost, even if it takes only a
// few bytes in the body.
const (
	bytesPerByte      = 4
	bytesPerTag       = 160
	bytesPerAttribute = 256
)

// estimateMemory returns an upper bound, in bytes, of the memory that parsing a body takes. It counts the bytes "<"
// and "=" of the body. In UTF-16 such a byte can be a part of another character, so the bound can be higher than
// necessary.
func estimateMemory(body []byte) int64 {
	tags, attributes := bytes.Count(body, []byte("<")), bytes.Count(body, []byte("="))
	return bytesPerByte*int64(len(body)) + bytesPerTag*int64(tags) + bytesPerAttribute*int64(attributes)
}
