package steps

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
	"golang.org/x/text/unicode/norm"

	"weir/internal/contract"
	"weir/internal/weir"
)

// pathFunctions has the functions that expressions call with a path in the message, and the form in
// which each function reads the values at the path.
var pathFunctions = map[string]contract.Form{"text": contract.FormText, "texts": contract.FormText,
	"number": contract.FormText, "line": contract.FormText, "has": contract.FormText,
	"inner": contract.FormInner, "outer": contract.FormOuter}

// message has everything that expressions can read of a message.
type message struct {
	*weir.Message
	keyPaths     contract.KeyPaths // paths of the key's parts
	values       map[contract.Selection][]string
	rememberedID string // the CMS's id of the key's item; empty = unknown
	// selectsNothing is called for each path that an expression reads, and that selects nothing;
	// nil = no call. The function has() only asks, so its paths are left out.
	selectsNothing func(path string)
	budget         *work // nil if the functions are not called
}

// addMessage adds the values of a message, and the functions that read the message, to the
// environment env.
func addMessage(env map[string]any, m message) {
	if m.Message == nil {
		m.Message = &weir.Message{}
	}

	env["key"], env["version"], env["contract"] = m.Key, m.Version, m.Contract
	env["id"], env["acceptedAt"] = m.Public().String(), m.AcceptedAt.UTC().Format(time.RFC3339)
	env[rememberedName] = nil
	if m.rememberedID != "" {
		env[rememberedName] = m.rememberedID
	}

	find := func(path string, form contract.Form) []string {
		return m.values[contract.Selection{Path: path, Form: form}]
	}
	parts := []string{}
	for _, path := range m.keyPaths {
		parts = append(parts, cmp.Or(find(path, contract.FormText)...))
	}

	env[keysName] = parts
	read := func(path string, form contract.Form) []string {
		values := find(path, form)
		if len(values) == 0 && m.selectsNothing != nil {
			m.selectsNothing(path)
		}
		return values
	}

	first := func(form contract.Form) func(string) any {
		return func(path string) any {
			if values := read(path, form); len(values) > 0 {
				return values[0]
			}
			return nil
		}
	}

	env["text"], env["inner"], env["outer"] = first(contract.FormText), first(contract.FormInner),
		first(contract.FormOuter)
	env["line"] = func(path string) any {
		values := read(path, contract.FormText)
		if len(values) == 0 {
			return nil
		}
		m.budget.spend(int64(len(values[0])))
		return normalizeSpace(values[0])
	}

	env["texts"] = func(path string) []string {
		// A nil slice would become null in JSON, and some CMSs refuse null in place of a list.
		values := read(path, contract.FormText)
		m.budget.spend(itemWork * int64(len(values)))
		return append([]string{}, values...)
	}

	env["has"] = func(path string) bool { return len(find(path, contract.FormText)) > 0 }
	env["number"] = func(path string) (any, error) {
		values := read(path, contract.FormText)
		if len(values) == 0 || values[0] == "" {
			return nil, nil
		}
		return parseNumber(path, values[0])
	}
}

// keysName is the name of the parts of the ordering key, as the message has them.
const keysName = "keys"

func messageNames() []string {
	env := map[string]any{}
	addMessage(env, message{})
	names := make([]string, 0, len(env))
	for name := range env {
		names = append(names, name)
	}
	return names
}

// normalizeSpace makes one blank of each run of XML's white space, as normalize-space of XPath 1.0
// does. Other spaces, such as one that does not break, stay.
func normalizeSpace(text string) string {
	return strings.Join(strings.FieldsFunc(text,
		func(r rune) bool { return strings.ContainsRune(" \t\r\n", r) }), " ")
}

// trimZeros returns a number as JSON writes it: without a plus and without leading zeros.
func trimZeros(text string) string {
	digits, isNegative := strings.CutPrefix(strings.TrimPrefix(text, "+"), "-")
	if whole := strings.TrimLeft(digits, "0"); whole != digits {
		if digits = whole; whole == "" || whole[0] < '0' || whole[0] > '9' {
			digits = "0" + whole
		}
	}

	if isNegative {
		return "-" + digits
	}

	return digits
}

func parseNumber(path, text string) (any, error) {
	if n, err := strconv.Atoi(text); err == nil {
		return n, nil
	}

	if digits := trimZeros(text); jsonNumber.MatchString(digits) {
		return toNumber(digits), nil
	}

	n, err := strconv.ParseFloat(text, 64)
	if err != nil || strings.ContainsAny(text, "xXnNiI_") {
		return nil, fmt.Errorf("%s is %.40q and not a number", path, text)
	}

	return n, nil
}

// addFunctions adds to env the functions that use only their arguments. Each function returns nil
// for a nil argument, so that a request can leave out a field without a value. The functions spend
// the budget w; it can be nil if they are not called.
func addFunctions(env map[string]any, w *work) {
	ofText := func(convert func(string) string) func(any) (any, error) {
		return func(value any) (any, error) {
			if value == nil {
				return nil, nil
			}
			text, err := toText(value)
			w.spend(int64(len(text)))
			return convert(text), err
		}
	}

	env["slug"] = ofText(makeSlug)
	env["dir"], env["base"] = ofText(path.Dir), ofText(path.Base)
	env["escape"] = ofText(url.QueryEscape)
	env["base64"] = ofText(func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) })
	env["bytes"] = decodeBytes
	env["uuid5"] = func(namespace string, value any) (any, error) {
		if value == nil {
			return nil, nil
		}

		space, err := uuid.Parse(namespace)
		if err != nil {
			return nil, fmt.Errorf("%q is not a UUID", namespace)
		}

		text, err := toText(value)
		w.spend(int64(len(text)))

		return uuid.NewSHA1(space, []byte(text)).String(), err
	}
}

// addOwn adds the parts of a step's own answer to env.
func addOwn(env map[string]any, a *answer) {
	env["status"], env["json"], env["headers"], env["body"], env["xml"] = a.Status, a.JSON,
		a.Headers, a.Body, a.XML
}

// makeSlug turns a text into lower-case ASCII letters, digits and hyphens, for an address.
func makeSlug(text string) string {
	var b strings.Builder
	for _, r := range norm.NFKD.String(strings.ReplaceAll(text, "ß", "ss")) {
		r = unicode.ToLower(r)
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case unicode.Is(unicode.Mn, r), r == '\'',
			r == '’': // an accent or an apostrophe is left out
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}

	return strings.TrimRight(b.String(), "-")
}

// toText converts a value to text. The text of nil is empty. For a list, an object or bytes, toText
// returns an error.
func toText(value any) (string, error) {
	switch v := value.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case pendingValue:
		return string(v), nil
	case *rawBytes:
		return "", errors.New(bytesElsewhere)
	case bool:
		return strconv.FormatBool(v), nil
	case int:
		return strconv.Itoa(v), nil
	case json.Number:
		return v.String(), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	}

	return "", fmt.Errorf("%s cannot stand in a text; take one part of it, or write toJSON(…)",
		describeKind(value))
}
