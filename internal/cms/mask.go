package cms

import (
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strings"

	"weir/internal/conceal"
)

// Mask hides secrets in texts from the CMS. A CMS may repeat the address or a header of a request in its answer, and
// callers of Weir's API can read the answer's text in a message's status. The zero Mask hides nothing.
type Mask struct{ replacer *strings.Replacer }

const (
	maskText = conceal.Hidden
	// minSecret is the smallest length in bytes of a value that a mask hides everywhere. A shorter value, such as a
	// version number, occurs in many texts by chance.
	minSecret = 6
)

// NewMask returns a mask that hides these secrets, except those shorter than 6 bytes.
func NewMask(secrets ...string) Mask { return newMask(secrets, nil) }

// newMask returns a mask for secrets, and for pairs name=value. It hides the value of a pair even if the value is
// shorter than minSecret.
func newMask(secrets, pairs []string) Mask {
	var forms []string
	for _, secret := range secrets {
		if len(secret) >= minSecret {
			forms = append(forms, EncodedForms(secret)...)
		}
	}
	return Mask{newReplacer(forms, pairs)}
}

// xmlEscapes are the common ways to escape a text in XML. XML demands escapes for & and <; some writers of XML escape
// more characters.
var xmlEscapes = []*strings.Replacer{
	strings.NewReplacer("&", "&amp;", "<", "&lt;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", `"`, "&quot;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;"),
}

// EncodedForms returns the forms that a value can have in a request or an answer: unchanged, and escaped for addresses,
// HTML, XML and JSON. The result can contain duplicates.
func EncodedForms(value string) []string {
	forms := []string{value, url.QueryEscape(value), url.PathEscape(value), html.EscapeString(value)}
	for _, escape := range xmlEscapes {
		forms = append(forms, escape.Replace(value))
	}
	for _, escapesMarkup := range []bool{true, false} {
		var text strings.Builder
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(escapesMarkup)
		if encoder.Encode(value) == nil { // a string can always be encoded
			forms = append(forms, strings.TrimSuffix(strings.TrimPrefix(text.String(), `"`), "\"\n"))
		}
	}
	return forms
}

// newReplacer returns a replacer that tries longer secrets first. Otherwise, if a secret begins with a shorter secret,
// only the shorter one would be hidden.
func newReplacer(secrets, pairs []string) *strings.Replacer {
	replacements := map[string]string{}
	for _, secret := range secrets {
		replacements[secret] = maskText
	}
	for _, pair := range pairs {
		name, _, _ := strings.Cut(pair, "=")
		replacements[pair] = name + "=" + maskText
	}
	var olds []string
	for old := range replacements {
		olds = append(olds, old)
	}
	slices.SortFunc(olds, func(a, b string) int { return len(b) - len(a) })
	var args []string
	for _, old := range olds {
		args = append(args, old, replacements[old])
	}
	return strings.NewReplacer(args...)
}

// Hide returns the text with … in place of each secret.
func (m Mask) Hide(text string) string {
	if m.replacer == nil {
		return text
	}
	return m.replacer.Replace(text)
}

// redirectTarget describes the scheme and the host of a Location. It leaves out path and query: a CMS often copies
// them from the address of the request, and this address may contain secrets of delivery.url.
func redirectTarget(location string) string {
	u, err := url.Parse(location)
	switch {
	case location == "":
		return ""
	case err != nil:
		return " to an address that cannot be read"
	case u.Host == "":
		return " to another path of the same host"
	case u.Scheme == "":
		return " to //" + u.Host
	}
	return " to " + u.Scheme + "://" + u.Host
}
