package settings

import (
	"time"

	"weir/internal/contract"
	"weir/internal/drain"
	"weir/internal/lease"
	"weir/internal/signin"
	"weir/internal/steps"
)

// Contract describes a kind of message, and the requests that write such a message to the
// CMS.
type Contract struct {
	contract.Definition `yaml:",inline"`
	// not set = one request, whose body is the message
	Steps    steps.Source `yaml:"steps"`
	RetryFor *Duration    `yaml:"retryFor"` // nil = delivery.retryFor
}

// Delivery describes the CMS and the delivery of messages.
type Delivery struct {
	URL      string            `yaml:"url"`
	Method   string            `yaml:"method"`
	Headers  map[string]Secret `yaml:"headers"`
	Timeout  Duration          `yaml:"timeout"`
	Attempts int               `yaml:"attempts"`
	// settle time; 0 = a tenth of the setting "lease", at least 2 s
	Settle  Duration `yaml:"settle"`
	Backoff Backoff  `yaml:"backoff"`
	// Patience is a time. After the CMS has refused all messages for this time, each further
	// refusal counts as an attempt.
	Patience Duration `yaml:"patience"`
	// RetryFor is the least time between the first and the last of the attempts that make a message
	// dead without a verdict of the CMS.
	RetryFor Duration `yaml:"retryFor"`
	// Brake is the number of keys whose messages die of the same rejection until further ones wait.
	Brake int `yaml:"brake"`

	// largest rate of requests to the CMS, over all lanes and instances
	Rate Rate `yaml:"rate"`
	// largest number of this instance's attempts at a time; 0 = one per lane
	MaxConcurrent int `yaml:"maxConcurrent"`

	SignIn SignIn       `yaml:"signIn"`
	TLS    signin.TLS   `yaml:"tls"`
	On     steps.Source `yaml:"on"` // rules for the answers to all steps
	// name of a header with a delay, beside Retry-After; "" = none
	RetryAfter string `yaml:"retryAfter"`
	// bytes read of an answer; 0 = 4 MiB, or 64 KiB without steps
	MaxAnswer ByteSize `yaml:"maxAnswer"`

	// Instances names the instances that deliver. The value "any" means all of them. The value
	// "process" means only those to which the host gives tickets.
	Instances string `yaml:"instances"`
}

// The values of delivery.instances.
const (
	AnyInstance     = "any"
	ProcessInstance = "process"
)

// DeliversByTicket reports whether an instance drains only the lanes that its tickets name.
func (s *Settings) DeliversByTicket() bool { return s.Delivery.Instances == ProcessInstance }

// checkValues adds a problem for each wrong value of the group at a path, such as delivery.
func (d *Delivery) checkValues(c *checker, path string) {
	must := func(ok bool, name, format string, args ...any) {
		c.must(ok, path+"."+name, format, args...)
	}
	must(d.URL != "", "url", "is missing: the address of the CMS")
	must(d.Method == "POST" || d.Method == "PUT" || d.Method == "PATCH", "method",
		"is %q and must be POST, PUT or PATCH", d.Method)
	must(d.Timeout > 0 && d.Timeout <= Duration(time.Hour), "timeout",
		"is %s and must be over 0s and at most 1h", d.Timeout)
	must(d.Attempts >= 1 && d.Attempts <= 1000, "attempts", "is %d and must be 1 to 1000",
		d.Attempts)
	must(d.Settle >= 0 && d.Settle <= Duration(time.Hour), "settle", "is %s and must be 0s to 1h",
		d.Settle)
	must(d.Patience >= Duration(time.Minute) && d.Patience <= Duration(90*24*time.Hour), "patience",
		"is %s and must be 1m to 90d", d.Patience)
	must(d.Brake >= 0 && d.Brake <= 1000, "brake", "is %d and must be 0 (off) to 1000", d.Brake)
	must(d.MaxConcurrent >= 0 && d.MaxConcurrent <= 1024, "maxConcurrent",
		"is %d and must be 0 (one for each lane) to 1024", d.MaxConcurrent)
	must(d.Instances == AnyInstance || d.Instances == ProcessInstance, "instances",
		"is %q and must be %s or %s", d.Instances, AnyInstance, ProcessInstance)
	must(d.RetryAfter == "" || signin.IsHeaderName(d.RetryAfter), "retryAfter",
		"is %q and must be the name of a header, such as X-RateLimit-Reset", d.RetryAfter)
	must(d.MaxAnswer >= 0 && d.MaxAnswer <= 64<<20, "maxAnswer", "is %d and must be at most 64MiB",
		d.MaxAnswer)

	d.Backoff.checkValues(c, path+".backoff")
	checkRetryFor(c, path+".retryFor", d.RetryFor)
}

// maxRetryFor bounds the least time of attempts, so that each message becomes final.
const maxRetryFor = Duration(90 * 24 * time.Hour)

// checkRetryFor checks a least time of attempts, of delivery or of a contract.
func checkRetryFor(c *checker, path string, d Duration) {
	c.must(d >= 0 && d <= maxRetryFor, path, "is %s and must be 0s to 90d", d)
}

// RetryFor returns the least time for which a contract's messages are tried: that of the contract,
// else that of delivery. A contract that is missing has no requests, and so no attempts.
func (s *Settings) RetryFor() func(contract string) time.Duration {
	byContract := map[string]time.Duration{}
	for _, c := range s.Contracts {
		if c.RetryFor != nil {
			byContract[c.Name] = time.Duration(*c.RetryFor)
		}
	}

	return func(contract string) time.Duration {
		if d, ok := byContract[contract]; ok {
			return d
		}
		return time.Duration(s.Delivery.RetryFor)
	}
}

// SettleTime returns the settle time: delivery.settle, or lease.Margin if that setting is 0.
func (s *Settings) SettleTime() time.Duration {
	if s.Delivery.Settle > 0 {
		return time.Duration(s.Delivery.Settle)
	}
	return lease.Margin(time.Duration(s.Lease))
}

// BackoffConfig returns the pauses between the attempts for a message.
func (s *Settings) BackoffConfig() drain.Backoff {
	b := drain.Backoff{Min: time.Duration(s.Delivery.Backoff.Min),
		Max: time.Duration(s.Delivery.Backoff.Max)}
	for _, step := range s.Delivery.Backoff.steps {
		b.Steps = append(b.Steps, time.Duration(step))
	}
	return b
}

// CMSHeaders returns the headers of each request to the CMS, with their secrets.
func (s *Settings) CMSHeaders() map[string]string {
	out := map[string]string{}
	for name, value := range s.Delivery.Headers {
		out[name] = string(value)
	}
	return out
}
