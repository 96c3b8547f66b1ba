package host

import (
	"net/http"
	"strings"
	"unicode/utf8"
)

// requestTarget is a request's address as the real host's web server passes it to the router. In
// the path, each escape except %2F is decoded once, and dot segments are resolved. The query is as
// the client sent it.
//
// A host has one of two ways to pass a request on to the handler: it forwards the request, or it
// proxies the request; see the package comment. The two ways change the address differently.
type requestTarget struct {
	path, query string
	hasQuery    bool
}

// parseTarget parses a request target. If the host refuses the request, parseTarget returns the
// status of the refusal; otherwise it returns the status 0.
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

	// %2F stays in the path, because the router would take a decoded %2F for the end of a segment.
	t.path = removeDotSegments(decodeEscapes(t.path, func(r rune) bool { return r != '/' }))
	if strings.ContainsRune(t.path, 0) {
		return requestTarget{}, http.StatusBadRequest
	}

	return t, 0
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// rebuildPath returns the path that a forwarding host sends to the handler. A forwarding host
// parses the decoded address as a URI a second time. The second parse decodes the escapes of
// unreserved characters, turns backslashes into slashes, resolves dot segments, and ends the path
// at ? or #.
func (t requestTarget) rebuildPath() string {
	path := t.path
	if !t.hasQuery { // the host's URI parser ignores white space at the end of the address
		path = strings.TrimRight(path, " \t\r\n")
	}

	if at := strings.IndexAny(path, "?#"); at >= 0 {
		path = path[:at]
	}

	path = decodeEscapes(strings.ReplaceAll(path, `\`, "/"), isUnreserved)

	return escapeBytes(removeDotSegments(path), ":/[]@!$&'()*+,;=%")
}

// encodePath returns the path that a proxying host sends to the handler: the decoded path, encoded
// again.
func (t requestTarget) encodePath() string {
	return escapeBytes(strings.ReplaceAll(t.path, "%", "%25"), ":/@!$&'()*+,;=%")
}

// encodeQuery returns the query that a proxying host sends to the handler. The host escapes each
// percent sign that begins no escape, and changes nothing else.
func (t requestTarget) encodeQuery() string { return escapePercents(t.query) }

// rebuildQuery returns the query that a forwarding host sends to the handler. The host ignores the
// case of names, and joins the values of one name by commas. The result has the last spelling of
// each name, and an equals sign even after a name without a value.
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

// removeDotSegments resolves the segments . and .. of a path. The path must begin with a slash.
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

// decodeEscapes decodes the percent escapes of the runes for which isWanted returns true. Escapes
// that are not UTF-8 stay unchanged.
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

// escapedRune decodes the percent escapes of one rune at the beginning of s, and returns how many
// bytes these escapes have. If s begins with no escaped rune, the size is 0.
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

// escapeBytes escapes all bytes of s except unreserved characters and the bytes in "allowed". Even
// if "allowed" contains a percent sign, escapeBytes escapes the percent signs of s that begin no
// escape.
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
