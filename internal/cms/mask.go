package cms

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strings"
)

// Mask replaces the secrets of the settings in texts that come from the CMS. A CMS may repeat the address or a
// header of a request in its answer, and each caller who may read a message's status can read the answer's
// text.
type Mask struct {
	replacer *strings.Replacer
	more     *strings.Replacer // for the secrets that With got
}

const (
	maskText = "…"
	// minSecret is the smallest length in bytes of a value that a mask replaces wherever the value stands. A
	// shorter value, such as the number of a version, stands in many texts by chance.
	minSecret = 6
)

// newMask returns a mask that hides the password of the address, the values in its query, and the values of all
// headers.
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
	var pairs []string // name=value; here the value may be shorter than minSecret
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

// NewMask returns a mask of these secrets, except those shorter than minSecret.
func NewMask(secrets ...string) Mask {
	var forms []string
	for _, secret := range secrets {
		if len(secret) >= minSecret {
			forms = append(forms, EncodedForms(secret)...)
		}
	}
	return Mask{replacer: newReplacer(forms, nil)}
}

// With returns a mask that also hides these secrets, but not those of an earlier With.
func (m Mask) With(secrets ...string) Mask {
	m.more = NewMask(secrets...).replacer
	return m
}

// The ways in which writers of XML escape a text. All writers escape & and <, as XML demands. Some writers
// escape more characters.
var xmlEscapes = []*strings.Replacer{
	strings.NewReplacer("&", "&amp;", "<", "&lt;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", `"`, "&quot;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;"),
	strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&apos;"),
}

// EncodedForms returns the forms that a value may have in a request or an answer: unchanged, and escaped for
// addresses, HTML, XML and JSON. A form can occur twice.
func EncodedForms(value string) []string {
	forms := []string{value, url.QueryEscape(value), url.PathEscape(value), html.EscapeString(value)}
	for _, escape := range xmlEscapes {
		forms = append(forms, escape.Replace(value))
	}
	for _, escapesMarkup := range []bool{true, false} {
		var text strings.Builder
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(escapesMarkup)
		if encoder.Encode(value) == nil { // a text can always be encoded
			forms = append(forms, strings.TrimSuffix(strings.TrimPrefix(text.String(), `"`), "\"\n"))
		}
	}
	return forms
}

// newReplacer returns a replacer that prefers the longest match, so that no part of a secret remains.
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

// Hide returns a text without secrets. The zero Mask hides no secret.
func (m Mask) Hide(text string) string {
	for _, replacer := range []*strings.Replacer{m.replacer, m.more} {
		if replacer != nil {
			text = replacer.Replace(text)
		}
	}
	return text
}

// redirectTarget returns words for scheme and host of a Location. It leaves out path and query, because they often
// repeat the path and query of the request, which may have secrets of the setting "delivery.url".
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
