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
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/storage/azure"
	"weir/tools/delay"
	"weir/tools/democms/server"
	"weir/tools/funchost/host"
)

// setup says what a rig is to be.
type setup struct {
	lanes     int           // 0 = 1
	lease     time.Duration // 0 = 30 s
	instances int           // 0 = 1
	latency   time.Duration // of the CMS
	supersede bool
	wait      time.Duration                     // before each retry; 0 = the project's own
	hostless  bool                              // CMS and storage only
	hangs     bool                              // handlers and host reach storage through a proxy of their own, which can hang
	groups    []host.Group                      // in the place of instances
	senders   *senders                          // reads the host's output; nil = not needed
	env       []string                          // more in the handlers' environment
	filled    func(context.Context, *rig) error // runs before the host starts
}

// rig is one installation of Weir with names of its own in the storage account.
type rig struct {
	*bench
	setup
	prefix  string
	cms     *server.Server
	cmsURL  string
	site    *http.Server
	account *azure.Account // the bench's own: what it sends is neither counted nor delayed
	store   *lane.Store
	hung    *delay.Proxy // where setup.hangs
	host    *host.Host
	client  *http.Client
}

const (
	readyLimit = 30 * time.Second
	lookPause  = 20 * time.Millisecond
)

// newRig starts CMS and host; close ends both.
func (b *bench) newRig(ctx context.Context, s setup) (*rig, error) {
	s.lanes, s.instances = max(s.lanes, 1), max(s.instances, 1)
	if s.lease == 0 {
		s.lease = 30 * time.Second
	}
	b.count++
	r := &rig{bench: b, setup: s, prefix: fmt.Sprintf("bench%d", b.count), client: newClient()}
	err := r.start(ctx)
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rig) start(ctx context.Context) error {
	if err := r.startCMS(); err != nil {
		return err
	}
	if err := r.openStore(ctx); err != nil {
		return err
	}
	if r.filled != nil {
		if err := r.filled(ctx, r); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	if r.hostless {
		return nil
	}
	if r.hangs {
		var err error
		if r.hung, err = delay.Start(ctx, distance(r.storage.ConnectionString(), r.delay)); err != nil {
			return err
		}
	}
	if err := r.startHost(); err != nil {
		return err
	}
	return r.ready(ctx)
}

// ready waits until every instance's handler answers.
func (r *rig) ready(ctx context.Context) error {
	return r.until(ctx, readyLimit, "the handlers are ready", func() bool {
		for _, i := range r.host.Status().Instances {
			if get(ctx, r.client, at(i)+"/api/health", nil) != nil {
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
	r.cms = server.New(r.latency, 0)
	r.site = &http.Server{Handler: r.cms, ReadHeaderTimeout: time.Minute}
	r.cmsURL = "http://" + socket.Addr().String() + "/api/content"
	go r.site.Serve(socket) // ends with Close
	return nil
}

func (r *rig) openStore(ctx context.Context) (err error) {
	if r.account, err = azure.Open(azure.Config{ConnectionString: r.storage.ConnectionString(), Prefix: r.prefix}); err != nil {
		return err
	}
	if err := r.account.Ensure(ctx); err != nil {
		return err
	}
	r.store = &lane.Store{Table: r.account.Table(), Bodies: r.account.Bodies(), Lanes: r.lanes, Now: time.Now}
	return r.store.Open(ctx)
}

func (r *rig) startHost() (err error) {
	config := filepath.Join(r.temp, r.prefix+".yaml")
	if err := os.WriteFile(config, []byte(r.settings()), 0o600); err != nil {
		return err
	}
	out := r.log
	if r.senders != nil {
		out = io.MultiWriter(r.log, r.senders)
	}
	r.host, err = host.Start(host.Config{
		ScriptRoot: r.app, Instances: r.instances, Groups: r.groups, Out: out, Quiet: true, GiveUpAfter: -1, StateDir: filepath.Join(r.temp, r.prefix),
		Env: append(append(os.Environ(), r.env...), "AzureWebJobsStorage="+r.connection(), "WEIR_PREFIX="+r.prefix, "WEIR_CONFIG="+config,
			"FUNCTIONS_WORKER_RUNTIME=custom", "WEIR_CMS_URL="+r.cmsURL),
	})
	return err
}

// connection is the account as this rig's handlers and host see it.
func (r *rig) connection() string {
	if r.hung != nil {
		return r.hung.ConnectionString(r.storage.ConnectionString())
	}
	return r.measuredStorage()
}

// settings is the weir.yaml of this rig: the project's own but for what the setup says.
func (r *rig) settings() string {
	version := "version: ./@version"
	if r.supersede {
		version += ", supersede: true"
	}
	backoff := ""
	if r.wait > 0 {
		backoff = fmt.Sprintf(", backoff: [%s]", r.wait)
	}
	return fmt.Sprintf(`
lanes: %d
lease: %s
delivery: { url: "${WEIR_CMS_URL}"%s }
contracts:
  - { name: article, root: article, key: ./@path, %s, fields: [ { path: ./title, rule: "required,max=200" }, { path: ./@version, rule: number } ] }
`, r.lanes, r.lease, backoff, version)
}

func (r *rig) close() error {
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
	if r.hung != nil {
		err = errors.Join(err, r.hung.Close())
	}
	r.client.CloseIdleConnections()
	return err
}

// until looks again and again until something holds.
func (r *rig) until(ctx context.Context, limit time.Duration, what string, holds func() bool) error {
	return waitUntil(ctx, limit, lookPause, what, holds)
}

// waitUntil looks again after each pause until the condition holds. The error names it if it does
// not hold within the limit.
func waitUntil(ctx context.Context, limit, between time.Duration, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !holds() {
		if !pause(ctx, between) {
			return fmt.Errorf("not within %s: %s", limit, what)
		}
	}
	return nil
}

// pause waits, and says whether it could to the end.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// atRest waits until every lane is empty and released.
func (r *rig) atRest(ctx context.Context, limit time.Duration) error {
	var last string
	err := r.until(ctx, limit, "the lanes are at rest", func() bool {
		for n := range r.lanes {
			c, err := r.store.ReadControl(ctx, n)
			if err != nil || c.Tail.IsOpen || c.WaitingCount() > 0 {
				last = fmt.Sprintf("lane %d: open %t, waiting %d, %v", n, c.Tail.IsOpen, c.WaitingCount(), err)
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

// transactions sums what handlers and host have sent to storage, by service and operation.
func (r *rig) transactions(ctx context.Context) (map[string]float64, error) {
	sum := map[string]float64{}
	for name, n := range r.host.Transactions() {
		sum["host "+name] += float64(n)
	}
	for _, i := range r.host.Status().Instances {
		if i.PID == 0 {
			continue
		}
		m, err := scrape(ctx, r.client, at(i)+"/api/metrics")
		if err != nil {
			return nil, fmt.Errorf("metrics of instance %d: %w", i.Number, err)
		}
		for name, v := range m {
			if labels, ok := strings.CutPrefix(name, "weir_storage_transactions_total"); ok {
				sum[label(labels, "service")+" "+label(labels, "operation")] += v
			}
		}
	}
	return sum, nil
}

// at is the address of an instance's handler itself.
func at(i host.InstanceStatus) string { return fmt.Sprintf("http://127.0.0.1:%d", i.Port) }

// clean holds the CMS's own record against what was sent: each message once, in the order
// of its key, never two of a key at once.
func (r *rig) clean(want int) error { return r.cleanBut(want, 0) }

// cleanBut allows some repeats, for those a crash may make.
func (r *rig) cleanBut(want, repeats int) error {
	st := r.cms.Stats()
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	check(st.Writes-st.Repeats == want, "the CMS took %d writes of %d messages", st.Writes-st.Repeats, want)
	check(st.Repeats <= repeats, "%d messages came twice", st.Repeats)
	check(st.Inversions == 0, "%d writes came after a later one of their key", st.Inversions)
	check(st.Overlaps == 0, "%d writes overlapped another of their key", st.Overlaps)
	check(st.MaxConcurrent <= r.lanes, "%d writes at once on %d lanes", st.MaxConcurrent, r.lanes)
	return errors.Join(problems...)
}
