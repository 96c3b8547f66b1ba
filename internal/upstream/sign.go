package upstream

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"
)

// Sender has the credentials with which an upstream sends requests.
type Sender struct {
	// the name of the upstream, needed if requests are signed; "" = the name is not sent
	Name   string
	Key    string // "" = requests are signed
	Scheme Scheme // used only without Key
	Secret []byte // used only without Key
}

// AddTo adds the credentials to the headers of a request. The parameter id is the idempotency key
// of the request. Only StandardWebhooks uses id and now.
func (s *Sender) AddTo(h http.Header, id string, now time.Time, body []byte) {
	if s.Name != "" {
		h.Set(NameHeader, s.Name)
	}

	mac := hmac.New(sha256.New, s.Secret)
	switch {
	case s.Key != "":
		h.Set(KeyHeader, s.Key)
	case s.Scheme == GitHub:
		mac.Write(body)
		h.Set(gitHubHeader, "sha256="+hex.EncodeToString(mac.Sum(nil)))
	default:
		timestamp := strconv.FormatInt(now.Unix(), 10)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		h.Set(idHeader, id)
		h.Set(timestampHeader, timestamp)
		h.Set(signatureHeader, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
}
