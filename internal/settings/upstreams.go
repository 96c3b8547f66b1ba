package settings

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"weir/internal/upstream"
)

// Upstream describes a system that posts messages.
type Upstream struct {
	Name      string          `yaml:"name"`
	Keys      []Secret        `yaml:"keys"`      // for the header Weir-Upstream-Key
	Signature upstream.Scheme `yaml:"signature"` // "github" or "standard"
	Secrets   []Secret        `yaml:"secrets"`   // for the signature
	// header webhook-timestamp: largest gap to now; 0 = defaultTolerance
	Tolerance Duration `yaml:"tolerance"`
	// nil = the upstream may send messages of all contracts
	Contracts  []string `yaml:"contracts"`
	Rate       Rate     `yaml:"rate"`       // zero = no limit
	DailyQuota *int64   `yaml:"dailyQuota"` // nil = no limit
}

// defaultTolerance is the value that the libraries of Standard Webhooks use
// (https://www.standardwebhooks.com).
const defaultTolerance = Duration(5 * time.Minute)

// upstreamName matches the names of upstreams. A name becomes a label of metrics, a part of row
// keys, and a query parameter.
var upstreamName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$`)

// checkUpstreams checks the upstreams. The text of a problem never contains a key or a secret.
func (s *Settings) checkUpstreams(c *checker) {
	var names []string
	var secrets []Secret
	for i, u := range s.Upstreams {
		path := fmt.Sprintf("upstreams[%d].", i)
		c.must(upstreamName.MatchString(u.Name), path+"name",
			"must have 1 to 64 letters, digits, dots, hyphens and underscores, "+
				"the first one a letter or a digit")
		c.must(!slices.Contains(names, u.Name), path+"name", "is taken by an earlier upstream")
		names = append(names, u.Name)
		u.checkCredentials(c, path)

		for _, one := range slices.Concat(u.Keys, u.Secrets) {
			c.must(!slices.Contains(secrets, one), path+"name",
				"a key or secret of %s is in the list twice", u.Name)
			secrets = append(secrets, one)
		}

		for j, name := range u.Contracts {
			c.must(slices.Contains(s.ContractNames(), name), fmt.Sprintf("%scontracts[%d]", path, j),
				"is %q, and there is no such contract", name)
		}

		c.must(u.Contracts == nil || len(u.Contracts) > 0, path+"contracts",
			"is empty; leave it out to allow all")
		c.must(u.DailyQuota == nil || *u.DailyQuota >= 1, path+"dailyQuota",
			"must be 1 or more; leave it out for no limit")
	}

	mustExist := func(name, format string, i int) {
		c.must(name == "" || slices.Contains(names, name), fmt.Sprintf(format, i),
			"is %q, and there is no such upstream", name)
	}
	if s.Intake.RabbitMQ != nil {
		for i, q := range s.Intake.RabbitMQ.Queues {
			mustExist(q.Upstream, "intake.rabbitmq.queues[%d].upstream", i)
		}
	}

	if s.Intake.Files != nil {
		for i, folder := range s.Intake.Files.Folders {
			mustExist(folder.Upstream, "intake.files.folders[%d].upstream", i)
		}
	}
}

// checkCredentials checks an upstream's keys and secrets. An upstream without keys and secrets is
// allowed: it can send only through a queue or a folder.
func (u *Upstream) checkCredentials(c *checker, path string) {
	c.must(u.Signature == "" || u.Signature == upstream.GitHub ||
		u.Signature == upstream.StandardWebhooks, path+"signature", "is %q and must be %s or %s",
		u.Signature, upstream.GitHub, upstream.StandardWebhooks)

	c.must(u.Signature == "" || u.Keys == nil, path+"keys",
		"%skeys and signature exclude each other: write two upstreams", path)
	c.must(u.Signature != "" || u.Secrets == nil, path+"secrets",
		"%ssecrets need signature: github or standard", path)
	c.must(u.Signature == "" || len(u.Secrets) > 0, path+"secrets",
		"is missing: the secrets of the signature")
	c.must(u.Keys == nil || len(u.Keys) > 0, path+"keys", "is empty")

	for i, key := range u.Keys {
		err := upstream.CheckKey(string(key))
		c.must(err == nil, fmt.Sprintf("%skeys[%d]", path, i), "%v", err)
	}

	for i, one := range u.Secrets {
		_, err := upstream.ParseSecret(u.Signature, string(one))
		c.must(err == nil || u.Signature == "", fmt.Sprintf("%ssecrets[%d]", path, i), "%v", err)
	}

	c.must(u.Tolerance >= 0 && u.Tolerance <= Duration(time.Hour), path+"tolerance",
		"is %s and must be at most 1h", u.Tolerance)
	c.must(u.Tolerance == 0 || u.Signature == upstream.StandardWebhooks, path+"tolerance",
		"has no effect without signature: standard")
}

// NewDefinition returns the upstream for package upstream. The settings have been checked.
func (u *Upstream) NewDefinition() upstream.Definition {
	d := upstream.Definition{Name: u.Name, Scheme: u.Signature,
		Tolerance: time.Duration(u.Tolerance), Contracts: u.Contracts, Rate: upstream.Rate(u.Rate)}
	if u.Tolerance == 0 {
		d.Tolerance = time.Duration(defaultTolerance)
	}

	for _, key := range u.Keys {
		d.Keys = append(d.Keys, string(key))
	}

	for _, one := range u.Secrets {
		// Load has checked the secret
		parsed, _ := upstream.ParseSecret(u.Signature, string(one))
		d.Secrets = append(d.Secrets, parsed)
	}

	if u.DailyQuota != nil {
		d.DailyQuota = *u.DailyQuota
	}

	return d
}

// DescribeLimits returns one line with the upstream's name and limits. The line contains no key and
// no secret.
func (u *Upstream) DescribeLimits() string {
	d := u.NewDefinition()
	parts := []string{"only by a queue or a folder"}
	switch {
	case u.Signature != "":
		parts[0] = fmt.Sprintf("signature %s, secrets: %d", u.Signature, len(u.Secrets))
	case u.Keys != nil:
		parts[0] = fmt.Sprintf("keys: %d", len(u.Keys))
	}

	if len(d.Contracts) > 0 {
		parts = append(parts, "contracts "+strings.Join(d.Contracts, " and "))
	}

	if d.Rate.Count > 0 {
		parts = append(parts, d.Rate.String())
	}

	if d.DailyQuota > 0 {
		parts = append(parts, fmt.Sprintf("%d a day", d.DailyQuota))
	}

	return u.Name + " (" + strings.Join(parts, ", ") + ")"
}

// UpstreamNames returns the names of the upstreams, in the order of weir.yaml.
func (s *Settings) UpstreamNames() (names []string) {
	for _, u := range s.Upstreams {
		names = append(names, u.Name)
	}
	return names
}
