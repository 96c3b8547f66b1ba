package httpio

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"weir/internal/weir"
)

// checkJSON checks the names and the times in a body that is to be decoded into a value of the type
// into. It returns the body in a form that encoding/json decodes as wanted, or a problem; "" =
// none.
//
// A name must not come twice in one object, or differ from the name of a field in case only.
// encoding/json ignores the case of names, and takes the last of several values. A reviewer, a
// gateway or the audit log could have read another value, or no value at all.
//
// A time is read by weir.ParseTime, as in all other ways in. encoding/json refuses times that RFC
// 3339 allows, and accepts some that it does not allow.
//
// If the JSON is broken before a problem, there is no problem. The decoder then reports the broken
// JSON.
func checkJSON(body []byte, into reflect.Type) (checked []byte, problem string) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var open []*jsonLevel
	next := into // the type of the next value
	copied := 0  // number of bytes of the body that are in checked
	for {
		began := int(d.InputOffset())
		token, err := d.Token()
		if err != nil {
			return append(checked, body[copied:]...), ""
		}

		if text, isText := token.(string); isText && isTime(next) {
			at, err := weir.ParseTime(text)
			if err != nil {
				return nil, err.Error()
			}

			began += bytes.IndexByte(body[began:], '"') // behind white space, a comma or a colon
			checked = append(checked, body[copied:began]...)
			checked = append(checked, at.Format(quotedTime)...)
			copied = int(d.InputOffset())
		}

		switch token {
		case json.Delim('{'):
			open = append(open, newObjectLevel(next))
			continue
		case json.Delim('['):
			open = append(open, &jsonLevel{element: elementOf(next)})
			next = elementOf(next)
			continue

		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}

		if len(open) == 0 {
			return append(checked, body[copied:]...), ""
		}

		if problem, next = open[len(open)-1].add(token); problem != "" {
			return nil, problem
		}
	}
}

// quotedTime is the layout of a time in JSON.
const quotedTime = `"` + time.RFC3339Nano + `"`

// isTime reports whether a value of the type is a time, or points to one.
func isTime(t reflect.Type) bool {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t == reflect.TypeFor[time.Time]()
}

// jsonLevel is an object or an array whose end is not yet read.
type jsonLevel struct {
	// names of the object, in lower case; nil = the level is an array
	names map[string]bool
	// types of the fields by their exact names; nil = each name is right
	fields     map[string]reflect.Type
	element    reflect.Type // type of the elements of an array or a map
	isNameNext bool         // the next token is a name, or the end of the object
}

// newObjectLevel returns the level of an object that is decoded into a value of the type t.
func newObjectLevel(t reflect.Type) *jsonLevel {
	l := &jsonLevel{names: map[string]bool{}, element: elementOf(t), isNameNext: true}
	if t = valueOf(t); t != nil && t.Kind() == reflect.Struct {
		l.fields = map[string]reflect.Type{}
		addFields(l.fields, t)
	}
	return l
}

// add records the next token of the level. The token is a name, a simple value, or the end of an
// inner object or array. If the token is a wrong name, add returns the problem. Otherwise it
// returns the type of the value that follows.
func (l *jsonLevel) add(token json.Token) (problem string, next reflect.Type) {
	if l.names == nil {
		return "", l.element
	}

	if !l.isNameNext {
		l.isNameNext = true
		return "", nil
	}

	l.isNameNext = false
	name, _ := token.(string)
	folded := foldName(name)
	if l.names[folded] {
		return fmt.Sprintf("the name %q comes twice in one object", name), nil
	}

	l.names[folded] = true
	if l.fields == nil {
		return "", l.element
	}

	if t, isField := l.fields[name]; isField {
		return "", t
	}

	for field := range l.fields {
		if foldName(field) == folded {
			return fmt.Sprintf("the name %q is not known: it must be %q", name, field), nil
		}
	}

	return "", nil // the decoder refuses the unknown name
}

// foldName returns the same text for all names that encoding/json takes for equal.
func foldName(name string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '\u017f': // the long s
			return 's'
		case '\u212a': // the Kelvin sign
			return 'k'
		}
		return r
	}, strings.ToLower(name))
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// valueOf returns the type to which a type of pointers points. It returns nil if values of the type
// decode themselves.
func valueOf(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}

	if t == nil {
		return nil
	}

	if p := reflect.PointerTo(t); p.Implements(jsonUnmarshaler) || p.Implements(textUnmarshaler) {
		return nil
	}

	return t
}

// elementOf returns the type of the elements of a list or map, or nil.
func elementOf(t reflect.Type) reflect.Type {
	if t = valueOf(t); t == nil {
		return nil
	}

	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		return t.Elem()
	}

	return nil
}

// addFields adds the fields that encoding/json decodes into a struct.
func addFields(fields map[string]reflect.Type, t reflect.Type) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		inner := valueOf(field.Type)
		switch {
		case field.Anonymous && name == "" && inner != nil && inner.Kind() == reflect.Struct:
			addFields(fields, inner)
		case !field.IsExported() || name == "-":
		case name == "":
			fields[field.Name] = field.Type
		default:
			fields[name] = field.Type
		}
	}
}
