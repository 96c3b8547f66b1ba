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

// Sender has the credentials of an upstream that sends requests.
type Sender struct {
	Name   string // "" = the requests do not name the upstream; a signature needs the name
	Key    string // "" = the sender signs its requests
	Scheme Scheme // of the signature
	Secret []byte // of the signature
}

// AddTo adds the credentials to the headers of a request. id is the idempotency key of the request. Only a signature
// of StandardWebhooks uses id and now.
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
