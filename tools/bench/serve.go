package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"weir/internal/democms"
)

// serveSizes are the sizes of the scenario "serve".
type serveSizes struct {
	// posts of many clients in one process: enough that its first garbage collections do not count
	rate int
	// messages that the process delivers before its memory and its start are measured again
	messages int
}

// serving is a process of weir serve on a folder. The bench syncs as a user does: the folder is on
// disk.
type serving struct {
	cmd *exec.Cmd
	url string // address of functions/receive
	pid int
}

// startServing starts weir serve on a folder, and returns when the process listens.
func startServing(ctx context.Context, r *rig, folder string) (*serving, error) {
	config := filepath.Join(r.temp, r.prefix+".yaml")
	if err := os.WriteFile(config, []byte(r.weirYAML()), 0o600); err != nil {
		return nil, err
	}

	cmd := exec.CommandContext(ctx, filepath.Join(r.app, "handler"), "serve", "--data", folder,
		"--config", config, "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "WEIR_CMS_URL="+r.cmsURL)
	cmd.Stderr = r.log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	if err := cmd.Start(); err != nil {
		return nil, err
	}

	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var entry struct{ Msg, Detail string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "serve: started" {
			base, _, _ := strings.Cut(strings.TrimPrefix(entry.Detail, "listens on "), ",")
			go io.Copy(r.log, out)
			return &serving{cmd, base + "/api/messages", cmd.Process.Pid}, nil
		}

		fmt.Fprintln(r.log, lines.Text())
	}

	return nil, errors.Join(errors.New("weir serve ended before it listened: see bench.log"),
		cmd.Wait())
}

// kill ends the process as a crash does.
func (s *serving) kill() {
	s.cmd.Process.Kill()
	_ = s.cmd.Wait() // the error only says that the process was killed
}

// runServe measures weir serve on a folder, without a Functions host and without Azurite.
func runServe(ctx context.Context, b *bench) ([]result, error) {
	var rows []result
	for _, measure := range []func(context.Context, *bench) ([]result, error){measureServeStart,
		measureServeLatency, measureServeRate, measureServeBurst, measureServeMemory} {
		got, err := measure(ctx, b)
		rows = append(rows, got...)
		if err != nil {
			return rows, err
		}
	}

	return rows, nil
}

// withServing calls do with a rig that has no host, and a process on a new folder.
func withServing(ctx context.Context, b *bench, latency time.Duration,
	do func(r *rig, s *serving, folder string) error) error {
	r, err := b.newRig(ctx, rigOptions{latency: latency, withoutHost: true})
	if err != nil {
		return err
	}
	defer r.shutDown()
	folder := filepath.Join(r.temp, r.prefix+"-data")
	s, err := startServing(ctx, r, folder)
	if err != nil {
		return err
	}
	defer s.kill()

	return do(r, s, folder)
}

// timeServeStart returns the time from exec to the first 202, in ms, and leaves the process
// running.
func timeServeStart(ctx context.Context, r *rig, folder, path string) (*serving, float64, error) {
	began := time.Now()
	s, err := startServing(ctx, r, folder)
	if err != nil {
		return nil, 0, err
	}

	err = postMessage(ctx, r.client, s.url, message{path, 1})
	took := milliseconds(time.Since(began))
	if err != nil {
		s.kill()
	}

	return s, took, err
}

// measureServeStart returns the median of several starts on a folder whose process was killed.
func measureServeStart(ctx context.Context, b *bench) (rows []result, err error) {
	err = withServing(ctx, b, 0, func(r *rig, s *serving, folder string) error {
		var all []float64
		for i := range b.sizes.cold.starts {
			s.kill()
			again, took, err := timeServeStart(ctx, r, folder, fmt.Sprint("/start/", i))
			if err != nil {
				return err
			}
			defer again.kill()
			s, all = again, append(all, took)
		}

		rows = append(rows, newRow("weir serve: exec to the first 202", "ms", median(all)).limitValue(100).
			withNote("%s, after a SIGKILL each", describeSpread(all)))
		return nil
	})

	return rows, err
}

// bareStore commits the rows of appends by bbolt alone, with the settings of the embedded store.
type bareStore struct {
	db   *bolt.DB
	next int64
}

func openBareStore(r *rig) (*bareStore, error) {
	db, err := bolt.Open(filepath.Join(r.temp, r.prefix+"-bare.db"), 0o600,
		&bolt.Options{NoStatistics: true,
			PageSize: 4096, NoFreelistSync: true, FreelistType: bolt.FreelistMapType,
			InitialMmapSize: 64 << 30})

	return &bareStore{db: db}, err
}

// bareColumns is about the size of the columns of a message's row beside its body.
const bareColumns = 250

// commit stores a head and as many rows as messages, in one commit.
func (s *bareStore) commit(messages int) error {
	return s.db.Update(func(tx *bolt.Tx) error {
		rows, err := tx.CreateBucketIfNotExists([]byte("1.0"))
		if err == nil {
			err = rows.Put([]byte("!head"), make([]byte, 60))
		}

		for range messages {
			s.next++
			row := append(make([]byte, bareColumns), packedBody()...)
			err = errors.Join(err, rows.Put(fmt.Appendf(nil, "m_%019d", s.next), row))
		}

		return err
	})
}

// bareHop makes the way to the process and back, at an address without a function.
func bareHop(ctx context.Context, r *rig, s *serving) error {
	return postFor(ctx, r.client, strings.Replace(s.url, "/messages", "/nothing", 1),
		message{"/hop", 1}.articleBody(), http.StatusNotFound)
}

// measureServeLatency compares a post with a bare hop and a bare commit, in turn.
func measureServeLatency(ctx context.Context, b *bench) (rows []result, err error) {
	err = withServing(ctx, b, 0, func(r *rig, s *serving, _ string) error {
		bare, err := openBareStore(r)
		if err != nil {
			return err
		}
		defer bare.db.Close()
		n := b.sizes.accept.latencies
		var posts, hops, commits, both []float64
		for i := range n + n/10 {
			m := message{fmt.Sprintf("/accept/%d", i%b.sizes.load.keys), i/b.sizes.load.keys + 1}
			post, err1 := timeStep(ctx,
				func() error { return postMessage(ctx, r.client, s.url, m) })
			hop, err2 := timeStep(ctx, func() error { return bareHop(ctx, r, s) })
			commit, err3 := timeStep(ctx, func() error { return bare.commit(1) })
			if err := errors.Join(err1, err2, err3); err != nil {
				return err
			}

			if i >= n/10 { // the first tenth opens connections
				posts, hops, commits, both = append(posts, post), append(hops, hop),
					append(commits, commit),
					append(both, hop+commit)
			}
		}

		rows = append(rows, newRow("weir serve: accept latency p50, one client", "ms", median(posts)).
			withBaseline(median(both)).limitRatio(1.3).
			withNote("post: %s; bare hop: %s; bare commit: %s", describeSpread(posts),
				describeSpread(hops), describeSpread(commits)))

		if err := r.awaitDelivered(ctx, n+n/10); err != nil {
			return err
		}

		return r.checkRecord(n + n/10)
	})

	return rows, err
}

// measureServeRate compares the posts of many clients with bare commits that form groups in the
// same way, each row with a bare hop before it. The lane is paused, so nothing is delivered
// meanwhile.
func measureServeRate(ctx context.Context, b *bench) (rows []result, err error) {
	err = withServing(ctx, b, 0, func(r *rig, s *serving, _ string) error {
		r.cms.SetFaults(democms.Faults{TooMany: "1h"})
		if err := postMessage(ctx, r.client, s.url, message{"/pause", 1}); err != nil {
			return err
		}

		err := r.awaitCondition(ctx, readyLimit, "the lane is paused",
			func() bool { return len(r.cms.Requests()) > 0 })
		if err != nil {
			return err
		}

		bare, err := openBareStore(r)
		if err != nil {
			return err
		}
		defer bare.db.Close()

		groups, number := newCommitGroups(bare), atomic.Int64{}
		defer groups.close()
		post := func() error {
			return postMessage(ctx, r.client, s.url,
				message{fmt.Sprintf("/rate/%d", number.Add(1)), 1})
		}

		hopAndRow := func() error { return errors.Join(bareHop(ctx, r, s), groups.store()) }
		var posts, hopped, warm throughput
		n := b.sizes.serve.rate / blocks
		err = errors.Join(repeatByClients(r, n, &warm, post),
			repeatByClients(r, n, &warm, hopAndRow))

		for range blocks {
			err = errors.Join(err, repeatByClients(r, n, &posts, post),
				repeatByClients(r, n, &hopped, hopAndRow))
		}

		if err != nil {
			return err
		}

		rows = append(rows, newRow("weir serve: accept rate, 64 clients, lane paused", "/s", posts.perSecond()).
			withBaseline(hopped.perSecond()).requireRatio(0.85).
			withNote("%d posts; the yardstick is a bare hop and a row of a bare commit each, in groups", posts.steps))

		return nil
	})

	return rows, err
}

// commitGroups lets rows that come during a commit share the next one.
type commitGroups struct {
	rows  chan chan error
	ended chan struct{}
}

func newCommitGroups(s *bareStore) *commitGroups {
	g := &commitGroups{rows: make(chan chan error, 256), ended: make(chan struct{})}
	go func() {
		defer close(g.ended)
		for first := range g.rows {
			group := []chan error{first}
			for len(g.rows) > 0 {
				group = append(group, <-g.rows)
			}

			err := s.commit(len(group))
			for _, done := range group {
				done <- err
			}
		}
	}()

	return g
}

// store returns when a row is durable.
func (g *commitGroups) store() error {
	done := make(chan error, 1)
	g.rows <- done

	return <-done
}

func (g *commitGroups) close() {
	close(g.rows)
	<-g.ended
}

// measureServeBurst measures a burst on one lane against bare round trips to the CMS.
func measureServeBurst(ctx context.Context, b *bench) (rows []result, err error) {
	err = withServing(ctx, b, cmsLatency, func(r *rig, s *serving, _ string) error {
		if err := r.sendMessages(ctx, makeMessages("warm", b.sizes.load.warm, 20), 4, s.url); err !=
			nil {
			return err
		}

		if err := r.awaitDelivered(ctx, b.sizes.load.warm); err != nil {
			return err
		}

		before, err := r.measureTrips(ctx, b.sizes.load.trips)
		if err != nil {
			return err
		}

		n, began := b.sizes.load.burst, time.Now()
		if err := r.sendMessages(ctx, makeMessages("serial", n, b.sizes.load.keys),
			b.sizes.load.clients, s.url); err != nil {
			return err
		}

		accepted := time.Since(began)
		if err := r.awaitDelivered(ctx, n); err != nil {
			return err
		}

		var until time.Time
		for _, req := range r.cms.Requests() {
			until = laterOf(until, req.EndedAt)
		}

		if err := r.checkRecord(n); err != nil {
			return err
		}

		after, err := r.measureTrips(ctx, b.sizes.load.trips)
		if err != nil {
			return err
		}

		trip := mean(append(before, after...))
		rows = append(rows, newRow("weir serve: serial burst", "s", until.Sub(began).Seconds()).
			withLeast(float64(n)*trip/1000).requireRatio(0.985).
			withNote("%d messages, bare round trip %.2f ms, all accepted after %.2f s", n, trip,
				accepted.Seconds()))

		return nil
	})

	return rows, err
}

// measureServeMemory measures the resident memory at rest and after many messages, and then the
// start on the folder that they filled, after a SIGKILL.
func measureServeMemory(ctx context.Context, b *bench) (rows []result, err error) {
	err = withServing(ctx, b, 0, func(r *rig, s *serving, folder string) error {
		if err := postMessage(ctx, r.client, s.url, message{"/first", 1}); err != nil {
			return err
		}

		if err := r.awaitDelivered(ctx, 1); err != nil {
			return err
		}

		idle, err := residentMemory(s.pid)
		if err != nil {
			return err
		}

		n := b.sizes.serve.messages
		if err := r.sendMessages(ctx, makeMessages("many", n, 1000), b.sizes.load.clients, s.url); err != nil {
			return err
		}

		if err := r.awaitDelivered(ctx, n+1); err != nil {
			return err
		}

		if !sleepFor(ctx, time.Second) {
			return ctx.Err()
		}

		full, err := residentMemory(s.pid)
		if err != nil {
			return err
		}

		peak, err := peakMemory(s.pid)
		if err != nil {
			return err
		}

		rows = append(rows, newRow("weir serve: resident at rest", "MiB", idle).limitValue(40),
			newRow(fmt.Sprintf("weir serve: resident after %d messages", n), "MiB", full).limitValue(120).
				withNote("most at any moment: %.0f MiB", peak))

		s.kill()
		file, err := os.Stat(filepath.Join(folder, "weir.db"))
		if err != nil {
			return err
		}

		again, took, err := timeServeStart(ctx, r, folder, "/again")
		if err != nil {
			return err
		}

		again.kill()
		rows = append(rows, newRow(fmt.Sprintf("weir serve: exec to the first 202 with %d messages", n), "ms", took).
			withNote("after a SIGKILL; the file has %d MB", file.Size()/1e6))

		return nil
	})

	return rows, err
}

// residentMemory returns the present resident set of a process, in MiB.
func residentMemory(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}

	for line := range strings.Lines(string(text)) {
		var kib float64
		if _, err := fmt.Sscanf(line, "VmRSS: %f kB", &kib); err == nil {
			return kib / 1024, nil
		}
	}

	return 0, fmt.Errorf("process %d: no VmRSS", pid)
}
