package contract

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Upper bounds of the memory, in bytes, that the parser takes for each byte, each "<" and each "="
// of a body. The parser copies each byte twice: when it decodes the body, and when it builds the
// tree. TestEstimateMemory compares the bounds with measured memory.
const (
	bytesPerByte      = 4
	bytesPerTag       = 160
	bytesPerAttribute = 256
	// One byte of an encoding other than UTF-8 can be a character of three bytes in UTF-8, in both
	// copies.
	bytesPerHighByte = 4
)

// estimateMemory returns an upper bound, in bytes, of the memory that the parser takes for a body.
// In UTF-16, the bytes of "<" and "=" can also be parts of other characters. Then the bound is
// higher than necessary.
func estimateMemory(body []byte) int64 {
	tags, attributes := bytes.Count(body, []byte("<")), bytes.Count(body, []byte("="))
	return bytesPerByte*int64(len(body)) + bytesPerTag*int64(tags) +
		bytesPerAttribute*int64(attributes) +
		bytesPerHighByte*int64(countHighBytes(body))
}

// countHighBytes returns the number of bytes that are not ASCII. It counts eight at a time, because
// each post passes here.
func countHighBytes(body []byte) (count int) {
	for ; len(body) >= 8; body = body[8:] {
		count += bits.OnesCount64(binary.LittleEndian.Uint64(body) & 0x8080808080808080)
	}

	for _, b := range body {
		count += int(b >> 7)
	}
	return count
}
