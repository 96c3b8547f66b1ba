package steps

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/types"
)

// The digits of a number stay, however many it has.
func TestToNumber(t *testing.T) {
	t.Parallel()
	long := "1" + strings.Repeat("0", 1_000_000)
	for text, want := range map[string]any{"0": 0, "-7": -7, "9223372036854775807": math.MaxInt64,
		"9223372036854775808": json.Number("9223372036854775808"), "1.5": 1.5, "1.50": 1.5,
		"1e3":                  1000.0,
		"12345678901234567.25": json.Number("12345678901234567.25"),
		"0.1234567890123456":   0.1234567890123456,
		"0.12345678901234567":  json.Number("0.12345678901234567"),
		"0.12345678901234568":  0.12345678901234568,
		"1e400":                json.Number("1e400"),
		"1e999999999999":       json.Number("1e999999999999"),
		long:                   json.Number(long)} {
		if got := toNumber(text); got != want {
			t.Errorf("%.40s: got %T %.40v, want %T %.40v", text, got, got, want, want)
		}
	}

	const space = " "
	for text, want := range map[string]string{"+007": "7",
		"-0012345678901234567890": "-12345678901234567890", "000": "0",
		"00.5": "0.5", "1.10": "1.1", space + "1": "error", "1,5": "error", "0x10": "error",
		"1_0": "error", "٣": "error"} {
		got, err := parseNumber("./n", text)
		if err != nil {
			got = "error"
		}

		if rendered, _ := toText(got); rendered != want {
			t.Errorf("number of %q: got %q, %v; want %q", text, rendered, err, want)
		}
	}
}

// An id beyond int64 is equal to itself and to its digits. Arithmetic fails by name where a float64
// would round.
func TestExpressions_KeepNumbersExact(t *testing.T) {
	t.Parallel()
	long := json.Number("12345678901234567890")
	env := map[string]any{"id": long, "same": long, "text": "12345678901234567890",
		"other": json.Number("12345678901234567891"),
		"max":   maxExactInt, "one": 1, "f": 0.5, "nothing": nil, "a": "x"}
	known := types.Map{}
	for name := range env {
		known[name] = types.Any
	}

	for source, want := range map[string]string{
		"id == same": "true", "id == text": "true", "text == id": "true", "id != text": "false",
		"id == other":   "false",
		"id != nothing": "true", "nothing == nil": "true", "one == 1": "true", "one == 1.0": "true",
		"one == '1'":                   "false",
		"id == 12345678901234567890.0": "false", "any([id], # == text)": "true",
		"max - one": "9007199254740991", "one + f": "1.5", "a + 'y'": "xy",
		"max + one": "9007199254740993",
		"id + one":  "12345678901234567890 has too many digits for arithmetic",
		"id * 2":    "too many digits",
		"max * max": "too many digits", "max * 2 - max": "too many digits",
		"one / (max * 4)": "too many digits",
	} {
		if source == "max + one" {
			want = "has too many digits for arithmetic, which is exact up to 2^53"
		}

		program, err := compileMetered(source, known)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}

		values := map[string]any{}
		for name, value := range env {
			values[name] = value
		}

		addWork(values, newWork(t.Context(), 0))
		got, err := expr.Run(program, values)
		if text := fmt.Sprint(got, err); !strings.Contains(text, want) {
			t.Errorf("%s: got %v, %v; want %s", source, got, err, want)
		}
	}
}
