package cms

import (
	"net/url"
	"slices"
	"strings"
	"sync"

	"weir/internal/conceal"
)

// Secrets is the list of the secrets that a CMS may repeat in its answers. Single requests, chains
// of steps and trials have the same list. The nil Secrets hides nothing. Secrets is safe for
// concurrent use.
type Secrets struct {
	fixed   []string
	pairs   []string        // name=value of the address's query
	current func() []string // nil = none

	mu    sync.Mutex
	last  []string // the secrets for which mask was made
	mask  Mask
	known map[string]bool // the elements of last
}

// NewSecrets returns the secrets of an address and of headers: the address's user info and query
// values, and the values of all headers. The function "current" returns further secrets; nil means
// that there are none. It is called for each text, and not once for each attempt, because an
// attempt can sign in, and then sends a new credential.
func NewSecrets(address *url.URL, headers map[string]string, current func() []string) *Secrets {
	s := &Secrets{fixed: conceal.AddressSecrets(address), current: current}
	for pair := range strings.SplitSeq(address.RawQuery, "&") {
		_, value, _ := strings.Cut(pair, "=")
		if value == "" || Placeholder.MatchString(value) {
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

// Hide returns the text with … in place of each secret that is known now. The list "more" has
// further secrets, such as the credentials of one attempt.
func (s *Secrets) Hide(text string, more ...string) string {
	if s == nil || text == "" {
		return text
	}

	mask, more := s.currentMask(more)
	text = mask.Hide(conceal.HideAddressParts(text))
	if len(more) > 0 {
		text = NewMask(more...).Hide(text)
	}

	return text
}

// currentMask returns a mask for the secrets that are known now, and those elements of "more" that
// it does not know. It makes a new mask only if the secrets have changed.
func (s *Secrets) currentMask(more []string) (mask Mask, unknown []string) {
	secrets := s.fixed
	if s.current != nil {
		secrets = slices.Concat(secrets, s.current())
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.known == nil || !slices.Equal(secrets, s.last) {
		s.last, s.known, s.mask = secrets, map[string]bool{}, newMask(secrets, s.pairs)
		for _, secret := range secrets {
			s.known[secret] = true
		}
	}

	for _, secret := range more {
		if !s.known[secret] {
			unknown = append(unknown, secret)
		}
	}

	return s.mask, unknown
}
