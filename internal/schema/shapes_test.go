package schema_test

import (
	"slices"
	"testing"
	"time"
)

func TestShapeOf(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"m_0000000000000000042":               "<epoch>.<lane> | m_<19 digits>",
		"m_000000000000000042":                "<epoch>.<lane> | m_<18 digits>",
		"b_0f3c0f3c0f3c0f3c0f3c0f3c0f3c0f3c":  "<epoch>.<lane> | b_<32 hex>",
		"b_00000000000000000000000000000000":  "<epoch>.<lane> | b_<32 hex>",
		"w_replay_0000000000000000042_forced": "<epoch>.<lane> | w_replay_<19 digits>_forced",
		"!replay_8302144555000" +
			"00000000": "<epoch>.<lane> | !replay_<13 digits><8 hex>",
		"o_1.0.42": "<epoch>.<lane> | o_<number>.<number>.<number>",
		"n_001767225600000000_" + hash32 +
			"_callback": "<epoch>.<lane> | n_<18 digits>_<32 hex>_callback",
	} {
		if got := shapeOf("3.17", key); got != want {
			t.Errorf("shape of %q: got %q, want %q", key, got, want)
		}
	}

	if got, want := shapeOf("schedules", "nightly"), "schedules | <name>"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

const hash32 = "0123456789abcdef0123456789abcdef"

func TestCompareColumns(t *testing.T) {
	t.Parallel()
	known, seen := newRecorder(), newRecorder()
	known.addRow("1.0", "!tail",
		map[string]any{"Cursor": int64(1), "Open": true, "At": time.Now(), "Absent": nil})
	seen.addRow("1.0", "!tail", map[string]any{"Place": int64(1), "Open": "true", "At": time.Now()})
	missing, added := compareColumns(known.formatShapes(), seen.formatShapes())
	const kind = "row   <epoch>.<lane> | !tail: column "
	if want := []string{kind + "Cursor int64", kind + "Open bool"}; !slices.Equal(missing, want) {
		t.Errorf("missing: got %q, want %q", missing, want)
	}

	if want := []string{kind + "Open string", kind + "Place int64"}; !slices.Equal(added, want) {
		t.Errorf("added: got %q, want %q", added, want)
	}
}

func TestMergeTypes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ known, seen, want string }{
		{"", "int64", "int64"},
		{"int64", "int64", "int64"},
		{"int64", "double", "double|int64"},
		{"string", "string JSON b", "string JSON b"},
		{"string JSON a b", "string JSON b c", "string JSON a b c"},
	} {
		if got := mergeTypes(c.known, c.seen); got != c.want {
			t.Errorf("%q and %q: got %q, want %q", c.known, c.seen, got, c.want)
		}
	}
}
