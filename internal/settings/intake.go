package settings

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"weir/internal/inbox"
	"weir/internal/rabbitmq"
	"weir/internal/signin"
)

// Intake configures the intake of messages from queues and files.
type Intake struct {
	RabbitMQ *RabbitMQ `yaml:"rabbitmq"` // nil = no queues are consumed
	Files    *Files    `yaml:"files"`    // nil = no files are taken
}

// Files configures the inbox.
type Files struct {
	// time for which a file must be unchanged before Weir takes it
	Quiet Duration `yaml:"quiet"`
	// retention of the archive; nil = defaultFileRetention
	Retention *Duration `yaml:"retention"`
	Folders   []Folder  `yaml:"folders"` // files outside of these folders have no upstream
	// allowOthers or RefuseOthers for files outside of the folders; "" = allow
	Others string `yaml:"others"`
}

// Folder assigns the files of a folder to an upstream.
type Folder struct {
	Folder   string `yaml:"folder"`
	Upstream string `yaml:"upstream"`
}

const (
	// defaultFileRetention is the default retention of the archive. It leaves people enough time to
	// notice a rejected file.
	defaultFileRetention = Duration(30 * 24 * time.Hour)
	// maxQuiet is the largest value of Files.Quiet.
	maxQuiet = Duration(24 * time.Hour)
)

// The values of intake.files.others.
const (
	allowOthers  = "allow"
	RefuseOthers = "refuse"
)

// checkValues checks intake.files. If the settings do not have intake.files, f is nil.
func (f *Files) checkValues(c *checker) {
	if f == nil {
		return
	}

	const group = "intake.files."
	c.must(f.Quiet >= 0 && f.Quiet <= maxQuiet, group+"quiet", "is %s and must be 0s to 24h", f.Quiet)
	c.must(f.RetentionOrDefault() >= Duration(24*time.Hour), group+"retention",
		"is %s and must be at least 1d", f.RetentionOrDefault())
	c.must(f.Others == "" || f.Others == allowOthers || f.Others == RefuseOthers, group+"others",
		"is %q and must be %s or %s", f.Others, allowOthers, RefuseOthers)
	c.must(f.Others != RefuseOthers || len(f.Folders) > 0, group+"others",
		"is refuse and needs intake.files.folders, because it would refuse every file")

	for i, folder := range f.Folders {
		name, entry := folder.Folder, fmt.Sprintf("%sfolders[%d].", group, i)
		c.must(name != "" && len(name) <= maxFolder && path.Clean("/"+name) == "/"+name,
			entry+"folder",
			"is %q and must be a path of 1 to %d bytes, without a slash at either end", name, maxFolder)
		c.must(folder.Upstream != "", entry+"upstream", "is missing: a name of upstreams")

		for _, other := range f.Folders[:i] {
			isWithin := strings.HasPrefix(name+"/", other.Folder+"/") ||
				strings.HasPrefix(other.Folder+"/", name+"/")
			c.must(!isWithin, entry+"folder", "is %q and must not overlap with the earlier %q", name,
				other.Folder)
		}
	}
}

// maxFolder is the largest size of a folder's path in bytes. It is half of the 1,024 characters
// that Azure allows for the name of a blob. The other half is left for the names of the folder's
// files.
const maxFolder = 512

// InboxFolders returns the folders that belong to upstreams.
func (f *Files) InboxFolders() (folders []inbox.Folder) {
	for _, one := range f.Folders {
		folders = append(folders, inbox.Folder{Path: one.Folder, Upstream: one.Upstream})
	}
	return folders
}

// RetentionOrDefault returns the retention of the archive.
func (f *Files) RetentionOrDefault() Duration {
	if f.Retention == nil {
		return defaultFileRetention
	}
	return *f.Retention
}

// RabbitMQ configures weir consume.
type RabbitMQ struct {
	URL      Secret     `yaml:"url"`
	TLS      signin.TLS `yaml:"tls"`
	Prefetch *int       `yaml:"prefetch"` // nil = defaultPrefetch
	Queues   []Queue    `yaml:"queues"`
	// "" = Weir rejects invalid messages without requeue
	DeadLetterExchange string `yaml:"deadLetterExchange"`
	// "required" or "optional"; "" = "required"
	MessageID string `yaml:"messageId"`
	// weir consume also delivers the messages
	Deliver bool `yaml:"deliver"`
}

// Queue is a queue that weir consume reads.
type Queue struct {
	Name     string `yaml:"name"`
	Contract string `yaml:"contract"` // "" = any
	Upstream string `yaml:"upstream"` // "" = no upstream, and no limits
	Consumer string `yaml:"consumer"` // "exclusive" or "single-active"; "" = "exclusive"
}

// defaultPrefetch is roughly the number of messages that fit in two transactions of a lane. A
// message with an idempotency key takes two of a transaction's 100 operations.
const defaultPrefetch = 100

// The values of intake.rabbitmq.queues[].consumer and of intake.rabbitmq.messageId.
const (
	exclusiveConsumer    = "exclusive"
	singleActiveConsumer = "single-active"

	requiredMessageID = "required"
	optionalMessageID = "optional"
)

// checkValues checks intake.rabbitmq. If the settings do not have intake.rabbitmq, r is nil.
func (r *RabbitMQ) checkValues(c *checker, contracts []string) {
	if r == nil {
		return
	}

	const group = "intake.rabbitmq."
	address, err := url.Parse(string(r.URL))
	c.must(err == nil && address.Host != "" &&
		(address.Scheme == "amqp" || address.Scheme == "amqps"), group+"url",
		"must be the address of the broker: amqps://user:password@host/vhost")
	_, err = r.TLS.NewConfig()
	c.must(err == nil, group+"tls", "%v", err)
	c.must(r.TLS == (signin.TLS{}) || err != nil || address == nil || address.Scheme != "amqp",
		group+"tls", "has no effect on an address that begins with amqp: and needs amqps:")
	prefetch := r.PrefetchOrDefault()
	c.must(prefetch >= 1 && prefetch <= 10_000, group+"prefetch", "is %d and must be 1 to 10000",
		prefetch)
	c.must(r.MessageID == "" || r.MessageID == requiredMessageID ||
		r.MessageID == optionalMessageID, group+"messageId", "is %q and must be %s or %s",
		r.MessageID, requiredMessageID, optionalMessageID)
	c.must(len(r.DeadLetterExchange) <= maxShortString, group+"deadLetterExchange",
		"has %d bytes and may have %d", len(r.DeadLetterExchange), maxShortString)
	c.must(len(r.Queues) > 0, group+"queues", "is missing: the queues to consume")

	var names []string
	for i, q := range r.Queues {
		entry := fmt.Sprintf("%squeues[%d].", group, i)
		c.must(q.Name != "" && len(q.Name) <= maxShortString, entry+"name",
			"must have 1 to %d bytes", maxShortString)
		c.must(q.Name == "" || !slices.Contains(names, q.Name), entry+"name",
			"is taken by an earlier queue")
		c.must(q.Contract == "" || slices.Contains(contracts, q.Contract), entry+"contract",
			"is %q, and there is no such contract", q.Contract)
		c.must(q.Consumer == "" || q.Consumer == exclusiveConsumer ||
			q.Consumer == singleActiveConsumer, entry+"consumer", "is %q and must be %s or %s",
			q.Consumer, exclusiveConsumer, singleActiveConsumer)

		names = append(names, q.Name)
	}
}

// maxShortString is the largest size of a name in AMQP, in bytes.
const maxShortString = 255

// PrefetchOrDefault returns how many messages the broker may send ahead of their acknowledgement.
func (r *RabbitMQ) PrefetchOrDefault() int {
	if r.Prefetch == nil {
		return defaultPrefetch
	}
	return *r.Prefetch
}

// ConsumedQueues returns the queues that weir consume reads.
func (r *RabbitMQ) ConsumedQueues() []rabbitmq.Queue {
	var queues []rabbitmq.Queue
	for _, q := range r.Queues {
		queues = append(queues, rabbitmq.Queue{Name: q.Name, Contract: q.Contract,
			Upstream: q.Upstream, SingleActive: q.Consumer == singleActiveConsumer})
	}
	return queues
}

// RequiresMessageID reports whether a message without message_id is invalid.
func (r *RabbitMQ) RequiresMessageID() bool {
	return cmp.Or(r.MessageID, requiredMessageID) == requiredMessageID
}
