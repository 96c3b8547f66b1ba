package host

import (
	"net/http"
	"strings"
	"unicode/utf8"
)

// requestTarget is a request's address as Kestrel passes it to the router: the path is decoded once, except %2F, and
// has no dot segments; the query is as the client sent it.
type requestTarget struct {
	path, query string
	hasQuery    bool
}

// parseTarget reads a request target. It returns the status with which the host refuses the request, or 0.
func parseTarget(method, raw string) (requestTarget, int) {
	switch {
	case raw == "*" && method == http.MethodOptions:
		return requestTarget{}, http.StatusNotFound
	case raw == "*":
		return requestTarget{}, http.StatusMethodNotAllowed
	case !strings.HasPrefix(raw, "/") || !isASCII(raw):
		return requestTarget{}, http.StatusBadRequest
	}
	var t requestTarget
	t.path, t.query, t.hasQuery = strings.Cut(raw, "?")
	// %2F stays in the path, because the router must not see a slash there.
	t.path = removeDotSegments(decodeEscapes(t.path, func(r rune) bool { return r != '/' }))
	if strings.ContainsRune(t.path, 0) {
		return requestTarget{}, http.StatusBadRequest
	}
	return t, 0
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// rebuildPath returns the path that a forwarding host sends on. The host writes the decoded address as text and reads
// that text as a URI again. This second reading decodes the escapes of unreserved characters once more, turns
// backslashes into slashes, resolves dots again, and ends the path at ? and #.
func (t requestTarget) rebuildPath() string {
	path := t.path
	if !t.hasQuery { // the host's parser of URIs ignores white space at the end
		path = strings.TrimRight(path, " \t\r\n")
	}
	if at := strings.IndexAny(path, "?#"); at >= 0 {
		path = path[:at]
	}
	path = decodeEscapes(strings.ReplaceAll(path, `\`, "/"), isUnreserved)
	return escapeBytes(removeDotSegments(path), ":/[]@!$&'()*+,;=%")
}

// encodePath returns the path that a proxying host sends on: the decoded path, encoded again.
func (t requestTarget) encodePath() string {
	return escapeBytes(strings.ReplaceAll(t.path, "%", "%25"), ":/@!$&'()*+,;=%")
}

// encodeQuery returns the query that a proxying host sends on: byte for byte, except that a
// percent sign that begins no escape is escaped.
func (t requestTarget) encodeQuery() string { return escapePercents(t.query) }

// rebuildQuery returns the query that a forwarding host sends on. It compares names without regard to case, joins the
// values of one name by commas under the last spelling of the name, and gives each name a value, even an empty one.
func (t requestTarget) rebuildQuery() string {
	var names []string
	values := map[string][]string{}
	for part := range strings.SplitSeq(t.query, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		name, value = decodeQuery(name), decodeQuery(value)
		key := strings.ToLower(name)
		if at := indexFold(names, name); at >= 0 {
			names[at] = name
		} else {
			names = append(names, name)
		}
		values[key] = append(values[key], value)
	}
	var out []string
	for _, name := range names {
		value := strings.Join(values[strings.ToLower(name)], ",")
		out = append(out, encodeQueryPart(name)+"="+encodeQueryPart(value))
	}
	return strings.Join(out, "&")
}

func indexFold(names []string, name string) int {
	for i, n := range names {
		if strings.EqualFold(n, name) {
			return i
		}
	}
	return -1
}

func decodeQuery(s string) string {
	return decodeEscapes(strings.ReplaceAll(s, "+", " "), func(rune) bool { return true })
}

func encodeQueryPart(s string) string {
	return escapeBytes(strings.ReplaceAll(s, "%", "%25"), "!$()*,;@%")
}

// removeDotSegments resolves . and .. between slashes. The path begins with a slash.
func removeDotSegments(path string) string {
	var out []string
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		switch s {
		case ".":
		case "..":
			out = out[:max(0, len(out)-1)]
		default:
			out = append(out, s)
			continue
		}
		if i == len(segments)-1 {
			out = append(out, "")
		}
	}
	return "/" + strings.Join(out, "/")
}

// decodeEscapes decodes the percent escapes of runes for which isWanted returns true. Escapes that are not UTF-8 stay
// unchanged.
func decodeEscapes(s string, isWanted func(rune) bool) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := escapedRune(s[i:])
		if size == 0 || !isWanted(r) {
			b.WriteByte(s[i])
			i++
			continue
		}
		b.WriteRune(r)
		i += size
	}
	return b.String()
}

// escapedRune decodes the escapes of one rune at the beginning of s. It returns size 0 if s does not begin with the
// escapes of a rune.
func escapedRune(s string) (r rune, size int) {
	var raw []byte
	for isEscape(s[size:]) {
		raw = append(raw, hexValue(s[size+1])<<4|hexValue(s[size+2]))
		size += 3
		if !utf8.FullRune(raw) {
			continue
		}
		if r, n := utf8.DecodeRune(raw); r != utf8.RuneError || n > 1 {
			return r, size
		}
		break
	}
	return 0, 0
}

func isEscape(s string) bool { return len(s) >= 3 && s[0] == '%' && isHex(s[1]) && isHex(s[2]) }

func isHex(c byte) bool { return strings.IndexByte("0123456789abcdefABCDEF", c) >= 0 }

func hexValue(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

func isUnreserved(r rune) bool {
	return r < utf8.RuneSelf && (isLetterOrDigit(byte(r)) || strings.ContainsRune("-._~", r))
}

func isLetterOrDigit(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

const hexDigits = "0123456789ABCDEF"

// escapeBytes escapes every byte except unreserved characters and the characters in "allowed". If "allowed" contains %,
// it leaves escapes as they are, and escapes only a percent sign that begins no escape.
func escapeBytes(s, allowed string) string {
	var b strings.Builder
	s = escapePercents(s)
	for i := range len(s) {
		if c := s[i]; isUnreserved(rune(c)) || strings.IndexByte(allowed, c) >= 0 {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return b.String()
}

// escapePercents escapes the percent signs that begin no escape.
func escapePercents(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteByte(s[i])
		if s[i] == '%' && !isEscape(s[i:]) {
			b.WriteString("25")
		}
	}
	return b.String()
}
