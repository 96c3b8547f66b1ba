package httpio

import (
	"bytes"
	"encoding/json"
	"strings"
)

// findRepeatedName returns a name that one object has twice, or "". encoding/json takes the last of two names
// that are equal except for their case, but a reviewer or a gateway may have read the first. If the JSON is
// broken, findRepeatedName returns "", because the decoder reports this error.
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

// jsonLevel is an object or an array that is not read to its end.
type jsonLevel struct {
	names      map[string]bool // nil = the level is an array
	isNameNext bool
}

// add records a name, or the end of a value. It reports whether the object already had the name.
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
