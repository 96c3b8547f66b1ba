package embedded

import (
	"encoding/binary"
)

const sumSize = 4

// sealBytes returns data with a checksum of key and data before it.
func sealBytes(key, data []byte) []byte {
	sealed := make([]byte, sumSize, sumSize+len(data))
	binary.BigEndian.PutUint32(sealed, sumOf(key, data))

	return append(sealed, data...)
}

// openBytes returns the data of sealBytes, or errDamaged. The data is a part of sealed.
func openBytes(key, sealed []byte) ([]byte, error) {
	if len(sealed) < sumSize || binary.BigEndian.Uint32(sealed) != sumOf(key, sealed[sumSize:]) {
		return nil, errDamaged
	}

	return sealed[sumSize:], nil
}
