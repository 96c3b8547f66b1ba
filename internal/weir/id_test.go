package weir_test

import (
	"testing"

	"weir/internal/weir"
)

func TestID(t *testing.T) {
	t.Parallel()
	id := weir.ID{Epoch: 3, Lane: 700, Seq: 1 << 40, Nonce: "00112233445566778899"}
	if got, err := weir.ParseID(id.String()); got != id || err != nil {
		t.Errorf("got %+v %v, want %v and no error", got, err, id)
	}

	for _, s := range []string{"", "A", "====", id.String() + "A", id.String()[1:],
		id.String() + "=", "gICAgICAgICAgICA"} {
		if got, err := weir.ParseID(s); err == nil {
			t.Errorf("%q: got the id %+v, want an error", s, got)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("AQABL714SFvJDd7dAA")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := weir.ParseID(s); err == nil && id.String() != s {
			t.Errorf("ParseID(%q).String() = %q, want the input", s, id.String())
		}
	})
}
