package httpio

import (
	"bytes"
	"encoding/json"
	"strings"
)

// findRepeatedName returns the first name that one object has twice; "" = there is none. Names that differ only in
// their case count as one name: encoding/json takes the value of the last one, but a reviewer or a gateway may
// have read the first one. If the JSON is broken before a repeated name, findRepeatedName returns "", because the
// decoder reports this error.
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

// jsonLevel is an object or an array that is not yet read to its end.
type jsonLevel struct {
	names      map[string]bool // in lower case; nil = the level is an array
	isNameNext bool            // the next token of the object is a name, or the object's end
}

// The method add records a name, or the end of a value. If the token is a name, the method returns it, and reports
// whether the object already had the name.
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
