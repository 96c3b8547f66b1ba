package azure

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"

	"weir/internal/storage"
)

// maxRow is the limit of a row's bytes, by Azure's documentation ("Understanding the Table service
// data model"). The emulator does not check this limit, but checkRow does: so a row that the real service
// would refuse fails in tests, too.
const maxRow = 1 << 20

// checkKey refuses characters that the documentation forbids in a key, and the empty key, which is
// allowed but always a mistake.
func checkKey(key string) error {
	if key == "" {
		return errors.New("an empty key")
	}
	bad := strings.IndexFunc(key, func(r rune) bool {
		return strings.ContainsRune(`/\#?`, r) || r < 0x20 || (r >= 0x7f && r < 0xa0)
	})
	if bad >= 0 {
		return fmt.Errorf("key %q: character %d is not allowed", key, bad)
	}
	return nil
}

// checkRow refuses a row that is too large.
func checkRow(op storage.Op) error {
	size := 4 + 2*len(op.Key)
	for name, v := range op.Values {
		size += 8 + 2*len(name) + valueSize(v)
	}
	if size > maxRow {
		return fmt.Errorf("row of about %d bytes", size)
	}
	return nil
}

// valueSize returns the bytes of a value in storage, which stores texts as UTF-16.
func valueSize(v any) int {
	switch v := v.(type) {
	case string:
		n := 4
		for _, r := range v {
			n += 2 * max(1, utf16.RuneLen(r))
		}
		return n
	case []byte:
		return 4 + len(v)
	}
	return 8
}
