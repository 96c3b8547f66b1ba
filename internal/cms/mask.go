package cms

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strings"
)

// Mask hides the secrets of the settings in texts from the CMS. A CMS may repeat the address or a header of a request
// in its answer, and callers of Weir's API can read the answer's text in a message's status. The zero Mask hides
// nothing.
type Mask struct {
	replacer *strings.Replacer
	more     *strings.Replacer // for the secrets given to With
}

const (
	maskText = "…"
	// minSecret is the smallest length in bytes of a value that a mask hides everywhere. A shorter value, such as a
	// version number, occurs in many texts by chance.
	minSecret = 6
)

// newMask returns a mask for the password and the query values of the address, and for the values of all headers.
func newMask(address *url.URL, headers map[string]string) Mask {
	var secrets []string
	add := func(value string) {
		if len(value) >= minSecret {
			secrets = append(secrets, EncodedForms(value)...)
		}
	}
	if address.User != nil {
		password, _ := address.User.Password()
		add(password)
		add(base64.StdEncoding.EncodeToString([]byte(address.User.Username() + ":" + password)))
	}
	var pairs []string // name=value; a pair is hidden even if its value is shorter than minSecret
	for pair := range strings.SplitSeq(address.RawQuery, "&") {
		_, value, _ := strings.Cut(pair, "=")
		if value == "" || placeholderPattern.MatchString(value) {
			continue
		}
		pairs = append(pairs, pair)
		add(value)
		if decoded, err := url.QueryUnescape(value); err == nil {
			add(decoded)
		}
	}
	for _, value := range headers {
		add(value)
		_, credential, _ := strings.Cut(value, " ") // the text after Bearer or Basic
		add(credential)
	}
	return Mask{replacer: newReplacer(secrets, pairs)}
}

// NewMask returns a mask that hides these secrets, except those shorter than 6 bytes.
func NewMask(secrets ...string) Mask {
	var forms []string
	for _, secret := range secrets {
		if len(secret) >= minSecret {
			forms = append(forms, EncodedForms(secret)...)
		}
	}
	return Mask{replacer: newReplacer(forms, nil)}
}

// With returns a copy of m that also hides these secrets. The copy does not hide the secrets of an earlier With.
func (m Mask) With(secrets ...string) Mask {
	m.more = NewMask(secrets...).replacer
	return m
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
	for _, replacer := range []*strings.Replacer{m.replacer, m.more} {
		if replacer != nil {
			text = replacer.Replace(text)
		}
	}
	return text
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
