package settings

import (
	"cmp"
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

// checkValues calls the function "must" for each rule of intake.files. If the settings do not have
// intake.files, f is nil.
func (f *Files) checkValues(must func(ok bool, format string, args ...any)) {
	if f == nil {
		return
	}

	must(f.Quiet >= 0 && f.Quiet <= maxQuiet,
		"intake.files.quiet is %s and must be 0s to 24h", f.Quiet)
	must(f.RetentionOrDefault() >= Duration(24*time.Hour),
		"intake.files.retention is %s and must be at least 1d", f.RetentionOrDefault())
	must(f.Others == "" || f.Others == allowOthers || f.Others == RefuseOthers,
		"intake.files.others is %q and must be %s or %s", f.Others, allowOthers, RefuseOthers)
	must(f.Others != RefuseOthers || len(f.Folders) > 0,
		"intake.files.others is refuse and needs intake.files.folders, because it would refuse every file")

	for i, folder := range f.Folders {
		name := folder.Folder
		must(name != "" && len(name) <= maxFolder && path.Clean("/"+name) == "/"+name,
			"intake.files.folders[%d].folder is %q and must be a path of 1 to %d bytes, without a slash at either end", i,
			name, maxFolder)
		must(folder.Upstream != "",
			"intake.files.folders[%d].upstream is missing: a name of upstreams", i)

		for _, other := range f.Folders[:i] {
			isWithin := strings.HasPrefix(name+"/", other.Folder+"/") ||
				strings.HasPrefix(other.Folder+"/", name+"/")
			must(!isWithin, "intake.files.folders[%d].folder is %q and must not overlap with the earlier %q", i, name,
				other.Folder)
		}
	}
}

// maxFolder is the largest size of a folder's path in bytes. It is half of the 1,024 characters
// that Azure allows for the name of a blob. The other half is left for the names of the folder's
// files.
const maxFolder = 512

func (f *Files) InboxFolders() (folders []inbox.Folder) {
	for _, one := range f.Folders {
		folders = append(folders, inbox.Folder{Path: one.Folder, Upstream: one.Upstream})
	}
	return folders
}

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

// checkValues calls the function "must" for each rule of intake.rabbitmq. If the settings do not
// have intake.rabbitmq, r is nil.
func (r *RabbitMQ) checkValues(contracts []string,
	must func(ok bool, format string, args ...any)) {
	if r == nil {
		return
	}

	const path = "intake.rabbitmq."
	address, err := url.Parse(string(r.URL))
	must(err == nil && address.Host != "" &&
		(address.Scheme == "amqp" || address.Scheme == "amqps"),
		path+"url must be the address of the broker: amqps://user:password@host/vhost")
	_, err = r.TLS.NewConfig()
	must(err == nil, path+"tls: %v", err)
	must(r.TLS == (signin.TLS{}) || err != nil || address == nil || address.Scheme != "amqp",
		path+"tls has no effect on an address that begins with amqp: and needs amqps:")
	prefetch := r.PrefetchOrDefault()
	must(prefetch >= 1 && prefetch <= 10_000,
		path+"prefetch is %d and must be 1 to 10000", prefetch)
	must(r.MessageID == "" || r.MessageID == requiredMessageID || r.MessageID == optionalMessageID,
		path+"messageId is %q and must be %s or %s", r.MessageID, requiredMessageID,
		optionalMessageID)
	must(len(r.DeadLetterExchange) <= maxShortString,
		path+"deadLetterExchange has %d bytes and may have %d",
		len(r.DeadLetterExchange), maxShortString)
	must(len(r.Queues) > 0, path+"queues is missing: the queues to consume")
	var names []string
	for i, q := range r.Queues {
		must(q.Name != "" && len(q.Name) <= maxShortString,
			path+"queues[%d].name must have 1 to %d bytes", i, maxShortString)
		must(q.Name == "" || !slices.Contains(names, q.Name),
			path+"queues[%d].name is taken by an earlier queue", i)
		must(q.Contract == "" || slices.Contains(contracts, q.Contract),
			path+"queues[%d].contract is %q, and there is no such contract", i, q.Contract)
		must(q.Consumer == "" || q.Consumer == exclusiveConsumer ||
			q.Consumer == singleActiveConsumer,
			path+"queues[%d].consumer is %q and must be %s or %s", i, q.Consumer, exclusiveConsumer,
			singleActiveConsumer)

		names = append(names, q.Name)
	}
}

// maxShortString is the largest size of a name in AMQP, in bytes.
const maxShortString = 255

func (r *RabbitMQ) PrefetchOrDefault() int {
	if r.Prefetch == nil {
		return defaultPrefetch
	}
	return *r.Prefetch
}

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
