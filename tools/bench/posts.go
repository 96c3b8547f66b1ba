package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
)

// postSize is a size of bodies, and the number of posts that are measured with it.
type postSize struct {
	bytes     int
	latencies int // posts after a pause each, for the latency
	posts     int // posts without a pause, for the CPU time; a multiple of blocks
}

// beforeRatio is the target for a figure against that of the build before: the noise of a run.
const beforeRatio = 1.1

// runPosts measures the acceptance of bodies of several sizes: the latency that one client sees,
// and the CPU time of the handler. The baseline is a bare program that reads the same bytes,
// compresses and stores them as Weir does, and looks at nothing (rawProgram). With another build,
// in the folder b.before, the figures are compared with those of that build, too. The lane is
// paused, so that no delivery is counted.
func runPosts(ctx context.Context, b *bench) ([]result, error) {
	var rows []result
	for _, s := range b.sizes.posts {
		more, err := measurePostSize(ctx, b, s)
		rows = append(rows, more...)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", formatBytes(s.bytes), err)
		}
	}

	return rows, nil
}

// postTarget is a program that takes posts, and the figures of its posts.
type postTarget struct {
	post  func(ctx context.Context, body string) error
	pid   int
	waits []float64 // latencies in ms
	cpu   float64   // CPU time of the posts without a pause, in s
}

func measurePostSize(ctx context.Context, b *bench, s postSize) (rows []result, err error) {
	targets, end, err := openPostTargets(ctx, b)
	defer func() { err = errors.Join(err, end()) }()
	if err != nil {
		return nil, err
	}

	number := 0
	postAll := func(n int, do func(*postTarget, string) error) error {
		for range n {
			number++
			body := longArticle(message{fmt.Sprintf("/posts/%d", number), 1}, s.bytes)
			for _, t := range targets {
				if err := do(t, body); err != nil {
					return err
				}
			}
		}
		return nil
	}

	warm := func(t *postTarget, body string) error { return t.post(ctx, body) }
	timed := func(t *postTarget, body string) error {
		wait, err := timeStep(ctx, func() error { return t.post(ctx, body) })
		t.waits = append(t.waits, wait)
		return err
	}
	if err := postAll(max(s.latencies/5, 2), warm); err != nil {
		return nil, err
	}
	if err := postAll(s.latencies, timed); err != nil {
		return nil, err
	}

	for range blocks {
		for _, t := range targets {
			if err := t.addCPUTime(ctx, s); err != nil {
				return nil, err
			}
		}
	}

	return postRows(s, targets), nil
}

// addCPUTime posts s.posts/blocks bodies without a pause, and adds the program's CPU time.
func (t *postTarget) addCPUTime(ctx context.Context, s postSize) error {
	before, err := readCPUTime(t.pid)
	if err != nil {
		return err
	}

	for i := range s.posts / blocks {
		body := longArticle(message{fmt.Sprintf("/cpu/%d", i), 1}, s.bytes)
		if err := t.post(ctx, body); err != nil {
			return err
		}
	}

	after, err := readCPUTime(t.pid)
	t.cpu += after - before

	return err
}

// The indices of the targets of openPostTargets.
const (
	targetWeir = iota
	targetRaw
	targetBefore // only with the flag -before
)

// openPostTargets starts Weir with a paused lane, the bare program, and the build before if there
// is one. The function ends them; it is never nil.
func openPostTargets(ctx context.Context, b *bench) (targets []*postTarget, end func() error,
	err error) {
	var ends []func() error
	end = func() error {
		var failed []error
		for _, e := range ends {
			failed = append(failed, e())
		}
		return errors.Join(failed...)
	}

	openWeir := func(app string) (*rig, error) {
		r, err := b.newWarmRig(ctx, rigOptions{build: app})
		if err != nil {
			return nil, err
		}

		ends = append(ends, r.shutDown)
		url := r.handlerURLs()[0]
		targets = append(targets, &postTarget{pid: r.host.Status().Instances[0].PID,
			post: func(ctx context.Context, body string) error {
				return postBody(ctx, r.client, url, body, nil)
			}})

		return r, pauseFirstLane(ctx, r)
	}

	r, err := openWeir(b.app)
	if err != nil {
		return nil, end, err
	}

	url, cmd, stop, err := startYardstick(ctx, rawVariable,
		rawSettings{Storage: r.yardstickStorage(), Prefix: r.prefix + "raw"})
	if err != nil {
		return nil, end, err
	}

	ends = append(ends, func() error { stop(); return nil })
	targets = append(targets, newRawTarget(r, url, cmd))
	if b.before != "" {
		_, err = openWeir(b.before)
	}

	return targets, end, err
}

func newRawTarget(r *rig, url string, cmd *exec.Cmd) *postTarget {
	return &postTarget{pid: cmd.Process.Pid, post: func(ctx context.Context, body string) error {
		return postBody(ctx, r.client, url, body, nil)
	}}
}

func postRows(s postSize, targets []*postTarget) []result {
	name := func(what string) string {
		return fmt.Sprintf("post of %s: %s", formatBytes(s.bytes), what)
	}
	weir, raw := targets[targetWeir], targets[targetRaw]
	each := func(t *postTarget) float64 { return t.cpu * 1000 / float64(s.posts) }

	rows := []result{
		newRow(name("accept latency p50"), "ms", median(weir.waits)).
			withBaseline(median(raw.waits)).
			withNote("post: %s; bare program: %s", describeSpread(weir.waits),
				describeSpread(raw.waits)),
		newRow(name("CPU of the handler"), "ms", each(weir)).withBaseline(each(raw)).
			withNote("%d posts of one client, lane paused", s.posts),
	}
	if len(targets) <= targetBefore {
		return rows
	}

	before := targets[targetBefore]
	return append(rows,
		newRow(name("accept latency p50, against the build before"), "ms", median(weir.waits)).
			withBaseline(median(before.waits)).limitRatio(beforeRatio).
			withNote("the build before: %s", describeSpread(before.waits)),
		newRow(name("CPU of the handler, against the build before"), "ms", each(weir)).
			withBaseline(each(before)).limitRatio(beforeRatio))
}

func formatBytes(n int) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// longArticle returns a body of the given size for a message: paragraphs of random words, which
// compress like text. Two bodies of a size differ in the message only, so that all targets have the
// same work.
func longArticle(m message, size int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<article path="%s" version="%d"><title>Version %d</title>`, m.path, m.version,
		m.version)
	random := rand.New(rand.NewPCG(1, uint64(size)))
	const closing = "</article>"
	for b.Len() < size-120 {
		b.WriteString("<p>")
		for range 12 {
			for range 2 + random.IntN(6) {
				b.WriteByte(byte('a' + min(random.IntN(26), random.IntN(26))))
			}
			b.WriteByte(' ')
		}
		b.WriteString("</p>")
	}

	rest := max(0, size-b.Len()-len(closing)-len("<p></p>"))
	fmt.Fprintf(&b, "<p>%s</p>%s", strings.Repeat("x", rest), closing)

	return b.String()
}
