package lane

import (
	"maps"
	"time"
)

// values reads a row's values leniently: what is absent is zero.
type values struct{ m map[string]any }

func (v values) string(name string) string { s, _ := v.m[name].(string); return s }
func (v values) int(name string) int64     { n, _ := v.m[name].(int64); return n }
func (v values) bool(name string) bool     { b, _ := v.m[name].(bool); return b }
func (v values) bytes(name string) []byte  { b, _ := v.m[name].([]byte); return b }

func (v values) time(name string) time.Time {
	t, _ := v.m[name].(time.Time)
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// sparse leaves out what is zero: an absent value reads as that, and every value of a row
// costs storage time and room. For rows that are written whole.
func sparse(m map[string]any) map[string]any {
	maps.DeleteFunc(m, func(_ string, v any) bool {
		return v == nil || v == "" || v == int64(0) || v == false
	})
	return m
}

// timeValue is what a row keeps of a moment. Storage has no zero time: zero is absent.
func timeValue(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC()
}

// since reads a moment of which the Unix epoch stands for none.
func (v values) since(name string) time.Time {
	t := v.time(name)
	if t.Unix() <= 0 {
		return time.Time{}
	}
	return t
}
