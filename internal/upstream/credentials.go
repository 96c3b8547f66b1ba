package upstream

import (
	"net/http"
	"slices"

	"weir/internal/weir"
)

// The headers with the credentials of a request.
const (
	NameHeader = "Weir-Upstream"
	KeyHeader  = "Weir-Upstream-Key"

	gitHubHeader    = "X-Hub-Signature-256"
	idHeader        = "Webhook-Id"
	timestampHeader = "Webhook-Timestamp"
	signatureHeader = "Webhook-Signature"
)

// otherNames has the names that Svix gives to the headers of Standard Webhooks
// (https://docs.svix.com/receiving/verifying-payloads/how-manual). The scheme is the same.
var otherNames = map[string]string{idHeader: "Svix-Id", timestampHeader: "Svix-Timestamp",
	signatureHeader: "Svix-Signature"}

// Parameter is a query parameter that can name the upstream instead of NameHeader. Many senders of
// webhooks let their users set the address, but not the headers.
const Parameter = "upstream"

// Headers returns NameHeader and KeyHeader.
func Headers() []string { return []string{NameHeader, KeyHeader} }

// Credentials are the headers and the parameter by which a request claims to come from an upstream.
// Set.Verify verifies the claim.
type Credentials struct {
	name, key, gitHub, id, timestamp, signature string
}

// ReadCredentials reads credentials from a request's headers, whose names must be canonical, and
// from the values of Parameter. It returns a Malformed error in these cases:
//   - A header or Parameter occurs twice or is empty. A header of Svix is the header of Standard
//     Webhooks; a request may have both with the same value.
//   - The request has both NameHeader and Parameter.
//   - The request has credentials of more than one kind: a key, GitHub's signature, or Standard
//     Webhooks.
//   - The request has some headers of Standard Webhooks, but not all.
//   - The webhook-id cannot be an idempotency key.
func ReadCredentials(h http.Header, parameter []string) (Credentials, error) {
	var c Credentials
	for name, target := range map[string]*string{NameHeader: &c.name, KeyHeader: &c.key,
		gitHubHeader: &c.gitHub,
		idHeader:     &c.id, timestampHeader: &c.timestamp, signatureHeader: &c.signature} {
		value, err := readOnce(h, name)
		if err != nil {
			return c, err
		}
		*target = value
	}

	switch {
	case len(parameter) > 1 || len(parameter) == 1 && c.name != "":
		return c,
			malformedError("name the upstream once: in the header " + NameHeader +
				" or in the parameter " + Parameter)

	case len(parameter) == 1 && parameter[0] == "":
		return c, malformedError("the parameter " + Parameter + " is empty")
	case len(parameter) == 1:
		c.name = parameter[0]
	}

	return c, c.checkKinds()
}

// readOnce returns the only value of a header, or of the header with its other name; "" = the
// request has neither.
func readOnce(h http.Header, name string) (string, error) {
	values, others := h[name], h[otherNames[name]]
	switch all := slices.Concat(values, others); {
	case len(all) == 0:
		return "", nil
	case len(values) > 1 || len(others) > 1:
		return "", malformedError("send " + name + " only once")
	case len(all) == 2 && all[0] != all[1]:
		return "", malformedError(name + " and " + otherNames[name] + " differ: send one of them")
	case all[0] == "":
		return "", malformedError(name + " is empty")
	default:
		return all[0], nil
	}
}

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
		return malformedError("send only one of " + KeyHeader + ", " + gitHubHeader + " and " +
			signatureHeader)
	case isWebhook && (c.id == "" || c.timestamp == "" || c.signature == ""):
		return malformedError("send all of " + idHeader + ", " + timestampHeader + " and " +
			signatureHeader)
	case len(c.id) > maxID || !isVisibleASCII(c.id):
		return malformedError(idHeader +
			" must have 1 to 255 visible ASCII characters (no spaces): " +
			"it is the idempotency key")
	}

	return nil
}

// IdempotencyKey returns the webhook-id of a request. If the request has no webhook-id,
// IdempotencyKey returns the argument "sent", which is the request's Idempotency-Key; "" = the
// request has no such header.
//
// If both are set and differ, IdempotencyKey returns a Malformed error. The signature covers the
// webhook-id, but not the Idempotency-Key. Without the error, a caller that recorded a request
// could send it again with another Idempotency-Key, and Weir would accept the message twice.
func (c *Credentials) IdempotencyKey(sent string) (string, error) {
	switch {
	case c.id == "" || sent == c.id:
		return sent, nil
	case sent != "":
		return "", malformedError("Idempotency-Key differs from " + idHeader +
			", which takes its place: leave it out")
	}

	return c.id, nil
}

// maxID is the largest length of a webhook-id, in bytes.
const maxID = 255

func malformedError(message string) error {
	return &weir.Error{Kind: weir.Malformed, Op: "upstream", Message: message}
}
