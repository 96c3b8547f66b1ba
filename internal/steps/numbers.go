package steps

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/vm/runtime"
)

// This file keeps the digits of numbers. A whole number of int64 is an int, and a decimal that a
// float64 keeps is a float64. All others are a json.Number: an id keeps its digits, and an
// expression cannot calculate with it.

// jsonNumber matches a number of JSON (RFC 8259, section 6).
var jsonNumber = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$`)

// maxExactInt is the largest number up to which a float64 has all whole numbers. CMSs and
// JavaScript calculate with float64.
const maxExactInt = 1 << 53

// safeDigits is the number of significant digits that each float64 keeps, and maxDigits the number
// that it can have.
const safeDigits, maxDigits = 15, 17

// toNumber returns a number of JSON as an int, a float64 or a json.Number.
func toNumber(text string) any {
	number := json.Number(text)
	if n, err := number.Int64(); err == nil {
		return int(n)
	}

	n, err := number.Float64()
	if err != nil || math.Abs(n) >= maxExact || !keepsDigits(text, n) {
		return number
	}

	return n
}

// keepsDigits reports whether a float64 is written with the same digits as the text it was read
// from.
func keepsDigits(text string, n float64) bool {
	mantissa, _, hasExponent := strings.Cut(strings.ToLower(text), "e")
	digits := strings.TrimLeft(strings.NewReplacer("-", "", ".", "").Replace(mantissa), "0")
	if strings.Contains(mantissa, ".") {
		digits = strings.TrimRight(digits, "0")
	}

	if len(digits) <= safeDigits || len(digits) > maxDigits || hasExponent {
		return len(digits) <= safeDigits
	}

	given, isGiven := new(big.Rat).SetString(text)
	kept, isKept := new(big.Rat).SetString(strconv.FormatFloat(n, 'f', -1, 64))

	return isGiven && isKept && given.Cmp(kept) == 0
}

// areEqual is the operator == of expressions. A number that has more digits than Go's types is
// equal to the same number, and to the text with its digits.
func areEqual(a, b any) bool {
	x, isLongA := a.(json.Number)
	y, isLongB := b.(json.Number)
	switch {
	case !isLongA && !isLongB:
		return runtime.Equal(a, b)
	case isLongA && isLongB:
		return x == y
	case isLongB:
		x, b = y, a
	}

	text, isText := b.(string)

	return isText && text == x.String() // no int and no float64 has the value of x; see toNumber
}

// multiply is the operator * of expressions. The product of two exact numbers can be too large for
// an int64.
func multiply(a, b any) any {
	x, isWholeA := requireExact(a).(int)
	y, isWholeB := requireExact(b).(int)
	if product := float64(x) * float64(y); isWholeA && isWholeB && math.Abs(product) > maxExactInt {
		return requireExact(product)
	}
	return requireExact(runtime.Multiply(a, b))
}

// requireExact returns an operand or the result of an arithmetic operator. It panics if the number
// is so large that the result can be another one than its digits show.
func requireExact(value any) any {
	var digits string
	switch n := value.(type) {
	case json.Number:
		digits = n.String()
	case int:
		if n <= maxExactInt && n >= -maxExactInt {
			return value
		}
		digits = strconv.Itoa(n)

	case float64:
		if math.Abs(n) <= maxExactInt || math.IsInf(n, 0) {
			return value
		}
		digits = strconv.FormatFloat(n, 'f', -1, 64)

	default:
		return value
	}

	panic(fmt.Errorf("%.40s has too many digits for arithmetic, which is exact up to 2^53 (%d)",
		digits, maxExactInt))
}
