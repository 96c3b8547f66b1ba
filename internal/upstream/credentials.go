package upstream

import (
	"net/http"

	"weir/internal/weir"
)

// The headers by which a request shows its upstream.
const (
	NameHeader = "Weir-Upstream"
	KeyHeader  = "Weir-Upstream-Key"

	gitHubHeader    = "X-Hub-Signature-256"
	idHeader        = "Webhook-Id"
	timestampHeader = "Webhook-Timestamp"
	signatureHeader = "Webhook-Signature"
)

// Parameter is the query parameter that may name the upstream in place of NameHeader. Senders of webhooks let
// their users choose an address, but no headers.
const Parameter = "upstream"

// Headers returns the names of the headers that ReadCredentials reads and that begin with Weir-.
func Headers() []string { return []string{NameHeader, KeyHeader} }

// Credentials are the parts of a request that show its sender. They are not verified.
type Credentials struct {
	name, key, gitHub, id, timestamp, signature string
}

// ReadCredentials reads the headers of a request, whose names must be canonical, and the values of Parameter.
// It returns a Malformed error in these cases: a header or Parameter comes twice or is empty; both NameHeader and
// Parameter are there; the request has credentials of more than one kind (a key, GitHub's signature, Standard
// Webhooks); the headers of Standard Webhooks are incomplete; the webhook-id cannot be an idempotency key.
func ReadCredentials(h http.Header, parameter []string) (Credentials, error) {
	var c Credentials
	for name, target := range map[string]*string{NameHeader: &c.name, KeyHeader: &c.key, gitHubHeader: &c.gitHub,
		idHeader: &c.id, timestampHeader: &c.timestamp, signatureHeader: &c.signature} {
		switch values := h[name]; {
		case len(values) > 1:
			return c, malformedError("send " + name + " only once")
		case len(values) == 1 && values[0] == "":
			return c, malformedError(name + " is empty")
		case len(values) == 1:
			*target = values[0]
		}
	}
	switch {
	case len(parameter) > 1 || len(parameter) == 1 && c.name != "":
		return c,
			malformedError("name the upstream once: in the header " + NameHeader + " or in the parameter " + Parameter)
	case len(parameter) == 1 && parameter[0] == "":
		return c, malformedError("the parameter " + Parameter + " is empty")
	case len(parameter) == 1:
		c.name = parameter[0]
	}
	return c, c.checkKinds()
}

// checkKinds returns an error if the credentials are of more than one kind or incomplete, or if the webhook-id cannot
// be an idempotency key.
func (c *Credentials) checkKinds() error {
	isWebhook := c.id != "" || c.timestamp != "" || c.signature != ""
	kinds := 0
	for _, isGiven := range []bool{c.key != "", c.gitHub != "", isWebhook} {
		if isGiven {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		return malformedError("send only one of " + KeyHeader + ", " + gitHubHeader + " and " + signatureHeader)
	case isWebhook && (c.id == "" || c.timestamp == "" || c.signature == ""):
		return malformedError("send all of " + idHeader + ", " + timestampHeader + " and " + signatureHeader)
	case len(c.id) > maxID || !isVisibleASCII(c.id):
		return malformedError(idHeader + " must have 1 to 255 visible ASCII characters (no spaces): " +
			"it is the idempotency key")
	}
	return nil
}

// IdempotencyKey returns the idempotency key that a request sends, or its webhook-id if it sends no key. If
// both exist and differ, it returns a Malformed error. The signature covers the webhook-id, but not the idempotency
// key. So a caller with a recorded request could otherwise file the message again under another key.
func (c *Credentials) IdempotencyKey(sent string) (string, error) {
	switch {
	case c.id == "" || sent == c.id:
		return sent, nil
	case sent != "":
		return "", malformedError("Idempotency-Key differs from " + idHeader + ", which takes its place: leave it out")
	}
	return c.id, nil
}

// maxID is the largest length of a webhook-id, and of an idempotency key.
const maxID = 255

func malformedError(message string) error {
	return &weir.Error{Kind: weir.Malformed, Op: "upstream", Message: message}
}
