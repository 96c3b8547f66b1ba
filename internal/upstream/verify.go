package upstream

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/internal/weir"
)

// Verification verifies which upstream sent a request. Write the request's body to the Verification
// in parts, and then call Finish. A Verification is not safe for concurrent use.
type Verification struct {
	name   string
	hasKey bool        // the request had a correct key, so it needs no signature
	macs   []hash.Hash // one for each secret
	signed [][]byte    // the signatures of the request
	// error for a wrong timestamp; Finish returns it only after a correct signature
	stale error
}

// Verify begins to verify a request, before its body is read. It returns an Unauthenticated error
// if the credentials are missing or incomplete, the key is wrong, or the signature or timestamp is
// malformed. It does not check signatures, which need the body; see Verification.Finish.
//
// If no upstream has the name, or the upstream has another Scheme, Verify returns no error, and
// Finish reports a wrong signature. So a caller without the secret cannot find out which names
// exist.
func (s *Set) Verify(c Credentials) (*Verification, error) {
	switch {
	case c.key != "":
		return s.verifyKey(c)
	case c.gitHub == "" && c.signature == "":
		return nil,
			unauthenticatedError("the request does not show who sends it: send " + KeyHeader +
				", or " + NameHeader + " and a signature")

	case c.name == "":
		return nil, unauthenticatedError("a signature needs the upstream's name, in the header " +
			NameHeader + " or in the parameter " + Parameter)
	}

	scheme := StandardWebhooks
	if c.gitHub != "" {
		scheme = GitHub
	}

	m := s.findMember(c.name)
	if m == nil || m.Scheme != scheme {
		m = unknownMember
	}

	if scheme == GitHub {
		return m.verifyGitHub(c)
	}

	return m.verifyWebhook(c, s.now())
}

// unknownMember replaces an upstream that does not exist or has another Scheme. Its secret is
// random, so Finish finds each signature wrong.
var unknownMember = &member{Definition: Definition{Secrets: [][]byte{[]byte(rand.Text())}}}

func (s *Set) verifyKey(c Credentials) (*Verification, error) {
	m := s.findByKey(c.key)
	if m == nil || c.name != "" && c.name != m.Name {
		return nil, unauthenticatedError("the key in " + KeyHeader + " is wrong")
	}
	return &Verification{name: m.Name, hasKey: true}, nil
}

func (m *member) verifyGitHub(c Credentials) (*Verification, error) {
	text, isSHA256 := strings.CutPrefix(c.gitHub, "sha256=")
	signature, err := hex.DecodeString(text)
	if !isSHA256 || err != nil || len(signature) != sha256.Size {
		return nil, unauthenticatedError(gitHubHeader +
			" must be sha256= and 64 hexadecimal digits")
	}
	return m.newVerification("", [][]byte{signature}), nil
}

// maxSignatures limits the signatures in one request. A sender that is changing its secret sends
// two.
const maxSignatures = 10

func (m *member) verifyWebhook(c Credentials, now time.Time) (*Verification, error) {
	seconds, err := strconv.ParseInt(c.timestamp, 10, 64)
	if err != nil {
		return nil, unauthenticatedError(timestampHeader +
			" must be a number of seconds since 1970")
	}

	var signed [][]byte
	for _, one := range strings.Fields(c.signature) {
		encoded, isKnown := strings.CutPrefix(one, "v1,")
		if signature, err := base64.StdEncoding.DecodeString(encoded); isKnown && err == nil {
			signed = append(signed, signature)
		}
	}

	if len(signed) == 0 || len(signed) > maxSignatures {
		return nil, unauthenticatedError(
			fmt.Sprintf("%s must have 1 to %d signatures: v1, and base64", signatureHeader,
				maxSignatures))
	}

	v := m.newVerification(c.id+"."+c.timestamp+".", signed)
	if away := now.Sub(time.Unix(seconds, 0)); away > m.Tolerance || away < -m.Tolerance {
		v.stale = unauthenticatedError(fmt.Sprintf("%s is more than %s away from the time here",
			timestampHeader, m.Tolerance))
	}

	return v, nil
}

// newVerification returns a verification of signatures. The signed text is the parameter "before",
// followed by the body.
func (m *member) newVerification(before string, signed [][]byte) *Verification {
	v := &Verification{name: m.Name, signed: signed}
	for _, secret := range m.Secrets {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(before))
		v.macs = append(v.macs, mac)
	}
	return v
}

// Claimed returns the name of the upstream that the request claims to come from. Trust the name
// only after Finish has returned no error. If no upstream has the claimed name and Scheme, Claimed
// returns "", and Finish will fail.
func (v *Verification) Claimed() string { return v.name }

// Write adds a part of the body. It never fails.
func (v *Verification) Write(part []byte) (int, error) {
	for _, mac := range v.macs {
		mac.Write(part)
	}
	return len(part), nil
}

// Finish returns the name of the upstream that sent the request. Call it after the whole body is
// written. It returns an Unauthenticated error if no signature is correct, or if the signed
// timestamp differed from the time of Verify by more than the upstream's tolerance.
func (v *Verification) Finish() (string, error) {
	if v.hasKey {
		return v.name, nil
	}

	isRight := false
	for _, mac := range v.macs {
		want := mac.Sum(nil)
		for _, signature := range v.signed {
			isRight = hmac.Equal(signature, want) || isRight
		}
	}

	if !isRight {
		return "", unauthenticatedError(
			"the signature is wrong: no upstream of this name has a secret that fits " +
				"the signature and the body")
	}

	if v.stale != nil {
		return "", v.stale
	}

	return v.name, nil
}

// The smallest and the largest size of a Standard Webhooks secret, in bytes
// (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md).
const minSecret, maxSecret = 24, 64

// ParseSecret returns the bytes of a secret. For StandardWebhooks the text is whsec_ and base64.
// For GitHub the text is the secret itself. The error does not repeat the secret.
func ParseSecret(scheme Scheme, text string) ([]byte, error) {
	if scheme == GitHub {
		if len(text) < minKey {
			return nil, fmt.Errorf("it must have at least %d characters", minKey)
		}
		return []byte(text), nil
	}

	encoded, hasPrefix := strings.CutPrefix(text, "whsec_")
	if !hasPrefix {
		return nil, errors.New("it must begin with whsec_")
	}

	secret, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(secret) < minSecret || len(secret) > maxSecret {
		return nil, fmt.Errorf("the part behind whsec_ must be %d to %d bytes in base64",
			minSecret, maxSecret)
	}

	return secret, nil
}

// minKey is the smallest length of a key or a GitHub secret, because 20 random characters of base64
// have 120 bits. maxKey is the largest length of a key.
const minKey, maxKey = 20, 512

// CheckKey returns an error if a text cannot be a key. The error does not repeat the text.
func CheckKey(text string) error {
	if len(text) < minKey || len(text) > maxKey || !isVisibleASCII(text) {
		return fmt.Errorf("it must have %d to %d visible ASCII characters", minKey, maxKey)
	}
	return nil
}

func isVisibleASCII(text string) bool {
	return !slices.ContainsFunc([]byte(text), func(b byte) bool { return b <= ' ' || b > '~' })
}

func unauthenticatedError(message string) error {
	return &weir.Error{Kind: weir.Unauthenticated, Op: "upstream", Message: message}
}
