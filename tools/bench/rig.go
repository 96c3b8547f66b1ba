package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"weir/internal/democms"
	"weir/internal/lane"
	"weir/internal/storage/azure"
	"weir/tools/delay"
	"weir/tools/freeport"
	"weir/tools/funchost/host"
)

type rigOptions struct {
	build     string        // script root; empty = that of the bench
	lanes     int           // 0 = one lane
	lease     time.Duration // length of a lane's lease; 0 = defaultLease
	instances int           // 0 = one instance
	latency   time.Duration // latency of the CMS
	supersede bool
	// CMS in place of the demo CMS; nil = the demo CMS
	chains      *chainSite
	retryWait   time.Duration // wait before each retry; 0 = Weir's default
	hasFiles    bool          // the handler takes files from an inbox
	withoutHost bool          // newRig does not start the host
	// handlers and host reach storage through hangingProxy
	canHang bool
	// groups of instances; if set, "instances" is ignored
	groups     []host.Group
	senders    *senderLog                        // gets a copy of the host's output; nil = no copy
	env        []string                          // variables added to the handlers' environment
	beforeHost func(context.Context, *rig) error // runs before the host starts
}

// rig is one installation of Weir. The names of its table, queues and containers begin with
// "prefix".
type rig struct {
	*bench
	rigOptions
	prefix string
	cms    *democms.Server
	cmsURL string
	site   *http.Server
	// used by the bench only; its requests are not counted and not delayed
	account *azure.Account
	store   *lane.Store
	// proxy that can let requests to storage hang; nil = canHang is not set
	hangingProxy *delay.Proxy
	host         *host.Host
	client       *http.Client
}

const (
	readyLimit = 5 * time.Minute // long, because a busy machine is slow
	pollPause  = 20 * time.Millisecond
)

// rigNumber is the number of rigs so far in this process. It is part of each rig's prefix, because
// the rigs of several benches can share an Azurite.
var rigNumber atomic.Int64

// newRig starts the CMS. If withoutHost is not set, it also starts the host. The caller must call
// shutDown.
func (b *bench) newRig(ctx context.Context, s rigOptions) (*rig, error) {
	s.lanes, s.instances = max(s.lanes, 1), max(s.instances, 1)
	if s.build == "" {
		s.build = b.app
	}
	if s.lease == 0 {
		s.lease = defaultLease
	}

	r := &rig{bench: b, rigOptions: s, prefix: fmt.Sprintf("bench%d", rigNumber.Add(1)),
		client: newClient()}
	err := r.startAll(ctx)
	if err != nil {
		r.shutDown()
		return nil, err
	}

	return r, nil
}

// newWarmRig returns a rig that has already delivered some messages.
func (b *bench) newWarmRig(ctx context.Context, o rigOptions) (*rig, error) {
	r, err := b.newRig(ctx, o)
	if err != nil {
		return nil, err
	}

	if err := r.warmUp(ctx); err != nil {
		return nil, errors.Join(err, r.shutDown())
	}

	return r, nil
}

func (r *rig) startAll(ctx context.Context) error {
	if err := r.startCMS(); err != nil {
		return err
	}

	if err := r.openStore(ctx); err != nil {
		return err
	}

	if r.beforeHost != nil {
		if err := r.beforeHost(ctx, r); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}

	if r.withoutHost {
		return nil
	}

	if r.canHang {
		var err error
		if r.hangingProxy, err = delay.Start(ctx, storageDistance(r.storage.ConnectionString(), r.delay)); err != nil {
			return err
		}
	}

	if err := r.startHost(); err != nil {
		return err
	}

	return r.awaitReady(ctx)
}

func (r *rig) awaitReady(ctx context.Context) error {
	return r.awaitCondition(ctx, readyLimit, "the handlers are ready", func() bool {
		for _, i := range r.host.Status().Instances {
			if getURL(ctx, r.client, handlerURL(i)+"/api/health", nil) != nil {
				return false
			}
		}
		return true
	})
}

func (r *rig) startCMS() error {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	r.cms = democms.New(r.latency, 0)
	r.site = &http.Server{Handler: r.cms, ReadHeaderTimeout: time.Minute}
	if r.chains != nil {
		r.site.Handler = r.chains
	}

	r.cmsURL = "http://" + socket.Addr().String() + "/api/content"
	go r.site.Serve(socket) // returns when shutDown closes r.site

	return nil
}

func (r *rig) openStore(ctx context.Context) (err error) {
	if r.account, err = azure.Open(azure.Config{ConnectionString: r.storage.ConnectionString(),
		Prefix: r.prefix, HasFiles: r.hasFiles}); err != nil {
		return err
	}

	if err := r.account.Ensure(ctx); err != nil {
		return err
	}

	r.store = &lane.Store{Table: r.account.Table(), Bodies: r.account.Bodies(), Lanes: r.lanes,
		Now: time.Now}
	return r.store.Open(ctx)
}

func (r *rig) startHost() (err error) {
	config := filepath.Join(r.temp, r.prefix+".yaml")
	if err := os.WriteFile(config, []byte(r.weirYAML()), 0o600); err != nil {
		return err
	}

	out := r.log
	if r.senders != nil {
		out = io.MultiWriter(r.log, r.senders)
	}

	port, err := freeport.Pick()
	if err != nil {
		return err
	}

	// ASPNETCORE_URLS names the host's port, as in the host's container images. Without this
	// variable, the handler would search for the port each second during the first minute, and each
	// search takes time.
	r.host, err = host.Start(host.Config{
		Port: port, ScriptRoot: r.build, Instances: r.instances, Groups: r.groups, Out: out,
		Quiet: true, GiveUpAfter: -1,
		StateDir: filepath.Join(r.temp, r.prefix),
		Env: append(append(os.Environ(), r.env...), "AzureWebJobsStorage="+r.storageConnection(),
			"WEIR_PREFIX="+r.prefix, "WEIR_CONFIG="+config,
			"FUNCTIONS_WORKER_RUNTIME=custom", "WEIR_CMS_URL="+r.cmsURL,
			"ASPNETCORE_URLS=http://127.0.0.1:"+strconv.Itoa(port)),
	})

	return err
}

// storageConnection returns the connection string for the rig's handlers and host.
func (r *rig) storageConnection() string {
	if r.hangingProxy != nil {
		return r.hangingProxy.ConnectionString(r.storage.ConnectionString())
	}
	return r.measuredStorage()
}

func (r *rig) weirYAML() string {
	if r.chains != nil {
		return r.chainYAML()
	}

	version := "version: ./@version"
	if r.supersede {
		version += ", supersede: true"
	}

	backoff := ""
	if r.retryWait > 0 {
		backoff = fmt.Sprintf(", backoff: [%s]", r.retryWait)
	}

	intake := ""
	if r.hasFiles {
		intake = "intake: { files: {} }"
	}

	return fmt.Sprintf(`
lanes: %d
lease: %s
%s
delivery: { url: "${WEIR_CMS_URL}"%s }
schedules: { max: 1000, rate: 1000/s }
contracts:
  - { name: article, root: article, key: ./@path, %s,
      fields: [ { path: ./title, rule: "required,max=200" }, { path: ./@version, rule: number } ] }
`, r.lanes, r.lease, intake, backoff, version)
}

func (r *rig) shutDown() error {
	var err error
	if r.host != nil {
		r.host.Stop()
	}

	if r.site != nil {
		err = r.site.Close()
	}

	if r.account != nil {
		r.account.Close()
	}

	if r.hangingProxy != nil {
		err = errors.Join(err, r.hangingProxy.Close())
	}

	r.client.CloseIdleConnections()

	return err
}

// awaitCondition calls "holds" each pollPause until "holds" returns true. If that takes longer than
// limit, the error contains "what", the name of the condition.
func (r *rig) awaitCondition(ctx context.Context, limit time.Duration, what string,
	holds func() bool) error {
	return waitUntil(ctx, limit, pollPause, what, holds)
}

// waitUntil calls "holds" until "holds" returns true, with the pause "between" after each call. If
// that takes longer than limit, the error contains "what", the name of the condition.
func waitUntil(ctx context.Context, limit, between time.Duration, what string,
	holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	for !holds() {
		if !sleepFor(ctx, between) {
			return fmt.Errorf("not within %s: %s", limit, what)
		}
	}

	return nil
}

// sleepFor waits for d. If ctx ends earlier, sleepFor returns false at once.
func sleepFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// awaitRest waits until each lane is free and has no waiting message.
func (r *rig) awaitRest(ctx context.Context) error {
	var last string
	err := r.awaitCondition(ctx, burstLimit, "the lanes are at rest", func() bool {
		for n := range r.lanes {
			c, err := r.store.ReadControl(ctx, n)
			if err != nil || c.Tail.IsOpen || c.WaitingCount() > 0 {
				last = fmt.Sprintf("lane %d: open %t, waiting %d, %v", n, c.Tail.IsOpen,
					c.WaitingCount(), err)
				return false
			}
		}

		return true
	})
	if err != nil {
		return fmt.Errorf("%w (%s)", err, last)
	}

	return nil
}

// readTransactions returns the number of requests that the handlers and the host sent to storage.
// Each key is a service and an operation, such as "table query". Keys of the host's requests begin
// with "host".
func (r *rig) readTransactions(ctx context.Context) (map[string]float64, error) {
	sum := map[string]float64{}
	for name, n := range r.host.Transactions() {
		sum["host "+name] += float64(n)
	}

	for _, i := range r.host.Status().Instances {
		if i.PID == 0 {
			continue
		}

		m, err := readMetrics(ctx, r.client, handlerURL(i)+"/api/metrics")
		if err != nil {
			return nil, fmt.Errorf("metrics of instance %d: %w", i.Number, err)
		}

		for name, v := range m {
			if labels, ok := strings.CutPrefix(name, "weir_storage_transactions_total"); ok {
				sum[labelValue(labels, "service")+" "+labelValue(labels, "operation")] += v
			}
		}
	}

	return sum, nil
}

// handlerURL returns the address of an instance's handler. A request to this address does not pass
// through the host.
func handlerURL(i host.InstanceStatus) string { return fmt.Sprintf("http://127.0.0.1:%d", i.Port) }

func (r *rig) awaitCleanDelivery(ctx context.Context, n int) error {
	if err := r.awaitDelivered(ctx, n); err != nil {
		return err
	}

	if err := r.awaitRest(ctx); err != nil {
		return err
	}
	return r.checkRecord(n)
}

// checkRecord checks the CMS's own record. The CMS must have got "want" messages, each message
// once, and the messages of a key in order. Two messages of a key must never overlap.
func (r *rig) checkRecord(want int) error { return r.checkRecordWithRepeats(want, 0) }

// checkRecordWithRepeats checks the same as checkRecord, and allows up to "repeats" repeated
// writes. A crash of a handler can cause repeats.
func (r *rig) checkRecordWithRepeats(want, repeats int) error {
	st := r.cms.Stats()
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}

	check(st.Writes-st.Repeats == want, "the CMS took %d writes of %d messages",
		st.Writes-st.Repeats, want)
	check(st.Repeats <= repeats, "%d messages came twice", st.Repeats)
	check(st.Inversions == 0, "%d writes came after a later one of their key", st.Inversions)
	check(st.Overlaps == 0, "%d writes overlapped another of their key", st.Overlaps)
	check(st.MaxConcurrent <= r.lanes, "%d writes at once on %d lanes", st.MaxConcurrent, r.lanes)

	return errors.Join(problems...)
}
