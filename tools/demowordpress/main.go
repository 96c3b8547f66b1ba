// Command demowordpress shows the effect of Weir on a real WordPress. Many clients write versions
// of the same posts at the same time. In the first run each client looks up a post in WordPress,
// and then creates or updates the post. In the second run the clients post to Weir instead. The
// command prints both results side by side, and leaves WordPress running until Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"weir/tools/realcms"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var d demo
	flag.IntVar(&d.slugs, "slugs", 20, "posts that are written")
	flag.IntVar(&d.versions, "versions", 20, "versions of each post")
	flag.IntVar(&d.clients, "clients", 16, "clients that write at once")
	flag.BoolVar(&d.exit, "exit", false, "end at once instead of leaving WordPress running")
	flag.Parse()
	d.out = os.Stdout
	if err := d.run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "make demo-wordpress:", err)
		os.Exit(1)
	}
}

// logPath is the file with the output of all processes.
const logPath = "build/demo-wordpress.log"

type demo struct {
	slugs, versions, clients int
	exit                     bool
	out                      io.Writer
	log                      *os.File
	wp                       *realcms.WordPress
}

// outcome is the result of a run. It fills one column of the table.
type outcome struct {
	tally    realcms.Tally
	failures int
	requests int           // number of requests to WordPress
	answered time.Duration // average time until a client got its answer
	took     time.Duration // time until WordPress had received all writes
}

func (d *demo) run(ctx context.Context) (err error) {
	if d.slugs < 1 || d.versions < 1 || d.clients < 1 {
		return errors.New("slugs, versions and clients must be at least 1")
	}

	if d.log, err = os.Create(filepath.FromSlash(logPath)); err != nil {
		return err
	}
	defer d.log.Close()
	fmt.Fprintln(d.out, "installing WordPress and its database into a temporary folder")
	if d.wp, err = realcms.StartWordPress(ctx, realcms.WordPressOptions{Log: d.log}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.wp.Stop()) }()
	direct, err := d.runDirect(ctx)
	if err != nil {
		return err
	}

	through, operator, stop, err := d.runThroughWeir(ctx)
	defer stop()
	if err != nil {
		return err
	}

	d.printTable(direct, through)
	if !through.tally.IsClean() || through.failures > 0 {
		return errors.New("the run through Weir has a duplicate, an old version or a failure: see " + logPath)
	}
	if d.exit {
		return nil
	}

	d.printAddresses(operator)
	<-ctx.Done()
	fmt.Fprintln(d.out, "\nstopping")

	return nil
}

// newRace returns all versions that the clients write in one run. All slugs begin with prefix.
func (d *demo) newRace(prefix string) realcms.Race {
	return realcms.Race{Prefix: prefix, Slugs: d.slugs, Versions: d.versions, Clients: d.clients}
}

// sender writes one version of a post.
type sender func(ctx context.Context, slug string, version int) error

// measureRace lets the clients write all versions, calls wait, and then counts the duplicates and
// old versions in WordPress.
func (d *demo) measureRace(ctx context.Context, race realcms.Race, proxy *realcms.Proxy,
	send sender, wait func(context.Context) error) (outcome, error) {
	var answered atomic.Int64
	began := time.Now()
	failed := race.Run(ctx, func(ctx context.Context, slug string, version int) error {
		sent := time.Now()
		err := send(ctx, slug, version)
		answered.Add(int64(time.Since(sent)))
		return err
	})
	for _, err := range failed {
		fmt.Fprintln(d.log, "client:", err)
	}

	if err := errors.Join(ctx.Err(), wait(ctx)); err != nil {
		return outcome{}, err
	}

	o := outcome{failures: len(failed), requests: proxy.Count(), took: time.Since(began),
		answered: time.Duration(answered.Load() / int64(race.Messages()))}
	posts, err := d.wp.Posts(ctx, race.Prefix)
	o.tally = realcms.TallyPosts(race, posts)

	return o, err
}

func (d *demo) runDirect(ctx context.Context) (outcome, error) {
	fmt.Fprintf(d.out, "%d clients write %d versions of %d posts, each for itself\n", d.clients,
		d.versions, d.slugs)
	proxy, err := realcms.StartProxy(d.wp.URL, nil)
	if err != nil {
		return outcome{}, err
	}
	defer proxy.Close()
	client := &realcms.WordPressClient{URL: proxy.URL, User: d.wp.User, Password: d.wp.Password}

	return d.measureRace(ctx, d.newRace("direct"), proxy, client.Upsert,
		func(context.Context) error { return nil })
}

func (d *demo) runThroughWeir(ctx context.Context) (o outcome, operator string, stop func(),
	err error) {
	proxy, err := realcms.StartProxy(d.wp.URL, nil)
	if err != nil {
		return o, "", func() {}, err
	}

	w, err := startWeir(ctx, d.log,
		[]string{"WORDPRESS_URL=" + proxy.URL, "WORDPRESS_USER=" + d.wp.User,
			"WORDPRESS_PASSWORD=" + d.wp.Password})
	if err != nil {
		return o, "", func() { proxy.Close() }, err
	}

	stop = func() { w.stop(); proxy.Close() }
	fmt.Fprintf(d.out, "%d clients write %d versions of %d posts through Weir, on two instances\n",
		d.clients, d.versions, d.slugs)
	o, err = d.measureRace(ctx, d.newRace("weir"), proxy, w.postVersion, w.awaitFinal)

	return o, w.url + "/api/dashboard", stop, err
}

func (d *demo) printTable(direct, through outcome) {
	fmt.Fprintln(d.out)
	w := tabwriter.NewWriter(d.out, 0, 4, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\teach client for itself\tthrough Weir\t\n")
	row := func(name string, f func(outcome) any) {
		fmt.Fprintf(w, "%s\t%v\t%v\t\n", name,
			f(direct), f(through))
	}

	row("messages", func(outcome) any { return d.slugs * d.versions })
	row(fmt.Sprintf("posts of %d slugs", d.slugs), func(o outcome) any { return o.tally.Items })
	row("duplicates (news-2, news-3 …)", func(o outcome) any { return o.tally.Surplus })
	row("posts that show an older version", func(o outcome) any { return o.tally.Stale })
	row("failures", func(o outcome) any { return o.failures })
	row("requests to WordPress", func(o outcome) any { return o.requests })
	row("a client waits, on average",
		func(o outcome) any { return o.answered.Round(time.Millisecond) })
	row("until WordPress has everything",
		func(o outcome) any { return o.took.Round(100 * time.Millisecond) })
	w.Flush()
}

func (d *demo) printAddresses(operator string) {
	fmt.Fprintf(d.out, `
WordPress is running until Ctrl-C. All of it is in a temporary folder, and goes with it.

  without Weir   %[1]s/?s=direct
  through Weir   %[1]s/?s=weir
  as an editor   %[1]s/wp-admin/edit.php?orderby=title&order=asc   (user %[2]s, password %[3]s)
  Weir           %[4]s

`, d.wp.URL, d.wp.User, d.wp.LoginPassword, operator)
}
