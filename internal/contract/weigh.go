package contract

import "bytes"

// Upper bounds of the memory, in bytes, that the parser takes for each byte, each "<" and each "=" of a body. The
// parser copies each byte twice: when it decodes the body, and when it builds the tree. TestEstimateMemory compares the
// bounds with measured memory.
const (
	bytesPerByte      = 4
	bytesPerTag       = 160
	bytesPerAttribute = 256
)

// estimateMemory returns an upper bound, in bytes, of the memory that the parser takes for a body. In UTF-16, the bytes
// of "<" and "=" can also be parts of other characters. Then the bound is higher than necessary.
func estimateMemory(body []byte) int64 {
	tags, attributes := bytes.Count(body, []byte("<")), bytes.Count(body, []byte("="))
	return bytesPerByte*int64(len(body)) + bytesPerTag*int64(tags) + bytesPerAttribute*int64(attributes)
}
