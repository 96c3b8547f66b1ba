package azure

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"

	"weir/internal/storage"
)

// maxRow is the largest size of a row in bytes, from Azure's documentation ("Understanding the
// Table service data model"). The emulator does not check this limit. So checkRow checks it: a row
// that Azure would refuse also fails in tests with the emulator.
const maxRow = 1 << 20

// checkKey refuses characters that Azure's documentation forbids in a key. It also refuses an empty
// key. Azure allows an empty key, but in Weir an empty key is a mistake.
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

// valueSize returns the size of a value in storage, in bytes. Storage keeps texts as UTF-16.
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
