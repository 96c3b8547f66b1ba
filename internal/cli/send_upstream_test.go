package cli

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestSenderFlags(t *testing.T) {
	t.Parallel()
	const key, secret = "newsroom-0123456789abcdef", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	for name, c := range map[string]struct {
		flags senderFlags
		env   map[string]string
		sent  string // a header that the request has; "" = no credentials
		wrong string // part of the error; "" = no error
	}{
		"nothing": {senderFlags{}, nil, "", ""},
		"key":     {senderFlags{key: key}, nil, "Weir-Upstream-Key", ""},
		"key of the env": {senderFlags{}, map[string]string{"WEIR_UPSTREAM_KEY": key},
			"Weir-Upstream-Key", ""},
		"standard": {senderFlags{name: "shop", scheme: "standard"},
			map[string]string{"WEIR_UPSTREAM_SECRET": secret}, "Webhook-Signature", ""},
		"GitHub": {senderFlags{scheme: "github"}, map[string]string{"WEIR_UPSTREAM": "forge",
			"WEIR_UPSTREAM_SECRET": "0123456789abcdef0123"}, "X-Hub-Signature-256", ""},
		"name alone": {senderFlags{name: "shop"}, nil, "", "--upstream needs"},
		"no name": {senderFlags{scheme: "standard"},
			map[string]string{"WEIR_UPSTREAM_SECRET": secret}, "", "--sign needs"},
		"no secret": {senderFlags{name: "shop", scheme: "standard"}, nil, "",
			"WEIR_UPSTREAM_SECRET: it must begin"},
		"unknown scheme": {senderFlags{name: "shop", scheme: "sha1"}, nil, "", "--sign must be"},
		"both": {senderFlags{name: "shop", scheme: "github", key: key}, nil, "",
			"exclude each other"},
		"bad key": {senderFlags{key: "a b"}, nil, "", "the key of the upstream"},
	} {
		sender, err := c.flags.readSender(func(name string) string { return c.env[name] })
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) ||
				strings.Contains(err.Error(), secret) {
				t.Errorf("%s: got %v, want %q and no secret", name, err, c.wrong)
			}
			continue
		}

		h := http.Header{}
		if sender != nil {
			sender.AddTo(h, "id", time.Unix(1614265330, 0), []byte("<a/>"))
		}

		if err != nil || (sender == nil) != (c.sent == "") || c.sent != "" && h.Get(c.sent) == "" {
			t.Errorf("%s: got the headers %v, %v; want %q", name, h, err, c.sent)
		}
	}
}
