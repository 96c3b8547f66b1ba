package settings

import (
	"strings"
	"testing"
	"time"

	"weir/internal/upstream"
)

const (
	upstreamKey   = "s3cret-key-0123456789"
	webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// withUpstreams returns the minimal settings with these entries in the list "upstreams".
func withUpstreams(lines string) string {
	return strings.TrimRight(minimal, "\n") + "\nupstreams:\n" + lines
}

func TestLoadSettings_Upstreams(t *testing.T) {
	t.Parallel()
	s, err := Load(newEnvironment(t, withUpstreams(
		"  - { name: newsroom, keys: ['${KEY}'], contracts: [article], rate: 50/s, dailyQuota: 10000 }\n"+
			"  - { name: forge, signature: github, secrets: ['${FORGE}'], rate: 90/m }\n"+
			"  - { name: shop, signature: standard, secrets: ['${SHOP}'] }\n  - { name: broker }\n"),
		"KEY", upstreamKey, "FORGE", "s3cret-of-the-forge-0123", "SHOP", webhookSecret))
	if err != nil {
		t.Fatal(err)
	}

	newsroom, forge := s.Upstreams[0].NewDefinition(), s.Upstreams[1].NewDefinition()
	shop := s.Upstreams[2].NewDefinition()
	if newsroom.Keys[0] != upstreamKey || newsroom.DailyQuota != 10000 ||
		newsroom.Rate != (upstream.Rate{Count: 50, Per: time.Second}) ||
		forge.Rate != (upstream.Rate{Count: 90, Per: time.Minute}) || forge.DailyQuota != 0 ||
		string(forge.Secrets[0]) != "s3cret-of-the-forge-0123" || shop.Tolerance != 5*time.Minute ||
		len(shop.Secrets[0]) != 24 {
		t.Errorf("got %+v, %+v and %+v; want the values of weir.yaml", newsroom, forge, shop)
	}
}

func TestLoadSettings_UpstreamProblems(t *testing.T) {
	t.Parallel()
	const keys = "keys: [" + upstreamKey + "]"
	for name, c := range map[string]struct{ lines, want string }{
		"NoName": {"  - { " + keys + " }\n", "upstreams[0].name must have"},
		"Name":   {"  - { name: 'a b', " + keys + " }\n", "upstreams[0].name must have"},
		"Twice": {"  - { name: a, " + keys + " }\n  - { name: a }\n",
			"upstreams[1].name is taken"},
		"SameKey": {"  - { name: a, " + keys + " }\n  - { name: b, " + keys + " }\n",
			"is in the list twice"},
		"ShortKey": {"  - { name: a, keys: [s3cret] }\n",
			"upstreams[0].keys[0]: it must have 20 to 512"},
		"KeyWithSpace": {"  - { name: a, keys: ['s3cret 0123456789012345'] }\n",
			"visible ASCII characters"},
		"NoKeys": {"  - { name: a, keys: [] }\n", "upstreams[0].keys is empty"},
		"Scheme": {"  - { name: a, signature: sha1, secrets: [s3cret] }\n",
			"must be github or standard"},
		"NoSecrets": {"  - { name: a, signature: github }\n", "upstreams[0].secrets is missing"},
		"ShortSecret": {"  - { name: a, signature: github, secrets: [s3cret] }\n",
			"secrets[0]: it must have at least 20"},
		"SecretWithoutPrefix": {"  - { name: a, signature: standard, secrets: [s3cret] }\n",
			"secrets[0]: it must begin with whsec_"},
		"NotBase64": {"  - { name: a, signature: standard, secrets: ['whsec_s3cret!'] }\n",
			"in base64"},
		"SecretsAlone": {"  - { name: a, secrets: [s3cret] }\n", "secrets need signature"},
		"KeysAndSignature": {"  - { name: a, signature: github, secrets: [s3cret], " +
			keys + " }\n", "exclude each other"},
		"Tolerance": {"  - { name: a, " + keys + ", tolerance: 1m }\n", "tolerance has no effect"},
		"LongTolerance": {"  - { name: a, signature: standard, secrets: [" + webhookSecret +
			"], tolerance: 2h }\n", "at most 1h"},
		"Contract": {"  - { name: a, " + keys + ", contracts: [x] }\n",
			`contracts[0] is "x", and there is no`},
		"NoContract":  {"  - { name: a, " + keys + ", contracts: [] }\n", "contracts is empty"},
		"Rate":        {"  - { name: a, " + keys + ", rate: 0/s }\n", "is not a rate such as"},
		"RatePerHour": {"  - { name: a, " + keys + ", rate: 5/h }\n", "is not a rate such as"},
		"Quota": {"  - { name: a, " + keys + ", dailyQuota: 0 }\n",
			"dailyQuota must be 1 or more"},
		"UnknownSetting": {"  - { name: a, key: s3cret }\n", "key"},
		"Queue": {"  - { name: a, " + keys +
			" }\nintake: { rabbitmq: { url: 'amqp://u:s3cret@b/', " +
			"queues: [{ name: q, upstream: b }] } }\n",
			`queues[0].upstream is "b", and there is no such upstream`},
		"Folder": {"  - { name: a, " + keys +
			" }\nintake: { files: { folders: [{ folder: f, upstream: b }] } }\n",
			`folders[0].upstream is "b", and there is no such upstream`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Load(newEnvironment(t, withUpstreams(c.lines)))
			if err == nil || !strings.Contains(err.Error(), c.want) ||
				!position.MatchString(err.Error()) ||
				strings.Contains(err.Error(), "s3cret") ||
				strings.Contains(err.Error(), webhookSecret) {
				t.Errorf("got %v, want %q with line and column, and no secret", err, c.want)
			}
		})
	}
}
