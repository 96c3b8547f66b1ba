package httpio

import (
	"bytes"
	"encoding/json"
	"strings"
)

// findRepeatedName returns the first name that comes twice in one object; "" = no name does. Names that differ only in
// case count as equal: encoding/json would take the last value, but a reviewer or a gateway may have read the first
// value.
//
// If the JSON is broken before a repeated name, the result is "". The decoder then reports the broken JSON.
func findRepeatedName(body []byte) string {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var open []*jsonLevel
	for {
		token, err := d.Token()
		if err != nil {
			return ""
		}
		switch token {
		case json.Delim('{'):
			open = append(open, &jsonLevel{names: map[string]bool{}, isNameNext: true})
			continue
		case json.Delim('['):
			open = append(open, &jsonLevel{})
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
		if len(open) == 0 {
			return ""
		}
		if name, repeated := open[len(open)-1].add(token); repeated {
			return name
		}
	}
}

// jsonLevel is an object or an array whose end is not yet read.
type jsonLevel struct {
	names      map[string]bool // names of the object, in lower case; nil = the level is an array
	isNameNext bool            // the next token is a name, or the end of the object
}

// add records the next token of the level. The token is a name, a simple value, or the end of an inner object or array.
// If the token is a name, add returns the name, and reports whether the object already had this name.
func (l *jsonLevel) add(token json.Token) (name string, repeated bool) {
	if l.names == nil {
		return "", false
	}
	if !l.isNameNext {
		l.isNameNext = true
		return "", false
	}
	l.isNameNext = false
	name, _ = token.(string)
	folded := strings.ToLower(name)
	repeated = l.names[folded]
	l.names[folded] = true
	return name, repeated
}
