package cms

import (
	"net/url"
	"strings"

	"weir/internal/conceal"
)

// Secrets is the list of the secrets that a CMS may repeat in its answers. Single requests, chains of steps and trials
// have the same list. The nil Secrets hides nothing. Secrets is safe for concurrent use.
type Secrets struct {
	fixed   []string
	pairs   []string        // name=value of the address's query
	current func() []string // nil = none
}

// NewSecrets returns the secrets of an address and of headers: the address's user info and query values, and the values
// of all headers. The function "current" returns further secrets; nil means that there are none. It is called for each
// text, and not once for each attempt, because an attempt can sign in, and then sends a new credential.
func NewSecrets(address *url.URL, headers map[string]string, current func() []string) *Secrets {
	s := &Secrets{fixed: conceal.AddressSecrets(address), current: current}
	for pair := range strings.SplitSeq(address.RawQuery, "&") {
		_, value, _ := strings.Cut(pair, "=")
		if value == "" || placeholderPattern.MatchString(value) {
			continue
		}
		s.pairs, s.fixed = append(s.pairs, pair), append(s.fixed, value)
		if decoded, err := url.QueryUnescape(value); err == nil {
			s.fixed = append(s.fixed, decoded)
		}
	}
	for name, value := range headers {
		s.fixed = append(s.fixed, conceal.HeaderSecrets(name, value)...)
	}
	return s
}

// Hide returns the text with … in place of each secret that is known now. The list "more" has further secrets, such as
// the credentials of one attempt.
func (s *Secrets) Hide(text string, more ...string) string {
	if s == nil || text == "" {
		return text
	}
	secrets := append(s.fixed[:len(s.fixed):len(s.fixed)], more...)
	if s.current != nil {
		secrets = append(secrets, s.current()...)
	}
	return newMask(secrets, s.pairs).Hide(conceal.HideAddressParts(text))
}
