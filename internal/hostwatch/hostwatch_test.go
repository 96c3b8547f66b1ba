package hostwatch_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"weir/internal/hostwatch"
)

const (
	host = 41
	head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
)

// proc is a /proc with one host, that a test changes while it is watched.
type proc struct {
	mu    sync.Mutex
	files fstest.MapFS
	err   error // of each call
}

func newProc() *proc { return &proc{files: fstest.MapFS{}} }

// fail makes each call fail, or none if err is nil.
func (p *proc) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *proc) Open(name string) (fs.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	return p.files.Open(name)
}

func (p *proc) ReadLink(name string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.files.ReadLink(name)
}

func (p *proc) Lstat(name string) (fs.FileInfo, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.files.Lstat(name)
}

// set sets the host's descriptors (targets by number), and the lines of tcp and tcp6; "none" = there is no tcp6.
func (p *proc) set(descriptors map[int]string, tcp, tcp6 string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files = fstest.MapFS{fmt.Sprintf("%d/fd", host): {Mode: fs.ModeDir}}
	for n, target := range descriptors {
		p.files[fmt.Sprintf("%d/fd/%d", host, n)] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte(target)}
	}
	p.files[fmt.Sprintf("%d/net/tcp", host)] = &fstest.MapFile{Data: []byte(head + tcp)}
	if tcp6 != "none" {
		p.files[fmt.Sprintf("%d/net/tcp6", host)] = &fstest.MapFile{Data: []byte(head + tcp6)}
	}
}

// line is one of /proc/net/tcp.
func line(address, state string, inode int) string {
	return fmt.Sprintf("   0: %s 00000000:0000 %s 00000000:00000000 00:00000000 00000000  1000        0 %d 1 00000000506b7761 100 0 0 10 0\n", address, state, inode)
}

func socket(inode int) string { return fmt.Sprintf("socket:[%d]", inode) }

// watched is a watch under way.
type watched struct {
	*hostwatch.Watch
	parent atomic.Int64
	event  hostwatch.Event
	err    error
	took   time.Duration
	ended  chan struct{}
}

func watch(t *testing.T, p *proc, ports ...string) *watched {
	w := &watched{ended: make(chan struct{})}
	w.parent.Store(host)
	w.Watch = &hostwatch.Watch{Proc: p, Host: host, Ports: ports, Parent: func() int { return int(w.parent.Load()) }}
	began := time.Now()
	go func() {
		defer close(w.ended)
		w.event, w.err = w.Stop(t.Context())
		w.took = time.Since(began)
	}()
	return w
}

// passes lets time pass, and checks that the watch has not ended.
func (w *watched) passes(t *testing.T, d time.Duration) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
	select {
	case <-w.ended:
		t.Fatalf("ended with %q (%v) after %s, want it to watch on", w.event, w.err, w.took)
	default:
	}
}

// ends checks that the watch ends within a tenth of a second.
func (w *watched) ends(t *testing.T, want hostwatch.Event) {
	t.Helper()
	began := time.Now()
	<-w.ended
	if took := time.Since(began); w.event != want || w.err != nil || took > 100*time.Millisecond {
		t.Errorf("%q (%v) after %s, want %q within 100ms", w.event, w.err, took, want)
	}
}

func TestWatch_Stop(t *testing.T) {
	t.Parallel()
	const anywhere, own, other = "00000000:0050", "0100007F:1F90", "0100007F:98BB" // 80, 8080, 39099
	for name, test := range map[string]func(t *testing.T, p *proc){
		"SocketOpensAndCloses": func(t *testing.T, p *proc) {
			p.set(map[int]string{1: "pipe:[7]", 5: "/dev/null"}, line(anywhere, "0A", 999), "")
			w := watch(t, p)
			w.passes(t, time.Hour) // it has not begun to listen
			p.set(map[int]string{1: "pipe:[7]", 5: socket(100), 6: socket(101)}, line(anywhere, "0A", 100)+line(anywhere, "01", 101), "")
			w.passes(t, time.Hour)
			p.set(map[int]string{1: "pipe:[7]", 6: socket(101)}, line(anywhere, "01", 101), "")
			w.ends(t, hostwatch.Stops)
		},
		"DescriptorIsReusedByAnotherSocket": func(t *testing.T, p *proc) {
			p.set(map[int]string{5: socket(100)}, line(anywhere, "0A", 100), "none")
			w := watch(t, p)
			w.passes(t, time.Second)
			p.set(map[int]string{5: socket(102)}, line(anywhere, "01", 102), "none")
			w.ends(t, hostwatch.Stops)
		},
		"SocketMovesToAnotherDescriptor": func(t *testing.T, p *proc) {
			p.set(map[int]string{5: socket(100)}, line(anywhere, "0A", 100), "")
			w := watch(t, p)
			w.passes(t, time.Second)
			p.set(map[int]string{9: socket(100)}, line(anywhere, "0A", 100), "")
			w.passes(t, time.Minute)
			p.set(nil, "", "")
			w.ends(t, hostwatch.Stops)
		},
		"SocketOfTheNamedPortIsWatched": func(t *testing.T, p *proc) {
			p.set(map[int]string{5: socket(100), 6: socket(101)}, line(own, "0A", 100)+line(other, "0A", 101), "")
			w := watch(t, p, "8080")
			w.passes(t, time.Second)
			p.set(map[int]string{5: socket(100)}, line(own, "0A", 100), "")
			w.passes(t, time.Minute)
			p.set(map[int]string{6: socket(101)}, line(other, "0A", 101), "")
			w.ends(t, hostwatch.Stops)
		},
		"SocketThatOtherMachinesReachIsWatched": func(t *testing.T, p *proc) {
			const six = "00000000000000000000000000000000:0050"
			p.set(map[int]string{5: socket(100), 6: socket(101)}, line(other, "0A", 101), line(six, "0A", 100))
			w := watch(t, p, "4711")
			w.passes(t, time.Second)
			p.set(map[int]string{6: socket(101)}, line(other, "0A", 101), "")
			w.ends(t, hostwatch.Stops)
		},
		"LastOfSeveralCloses": func(t *testing.T, p *proc) {
			p.set(map[int]string{5: socket(100), 6: socket(101)}, line(own, "0A", 100)+line(other, "0A", 101), "")
			w := watch(t, p)
			w.passes(t, time.Second)
			p.set(map[int]string{6: socket(101)}, line(other, "0A", 101), "")
			w.passes(t, time.Minute)
			p.set(map[int]string{6: socket(103)}, line(other, "06", 103), "")
			w.ends(t, hostwatch.Stops)
		},
		"SocketThatOpensLaterIsWatched": func(t *testing.T, p *proc) {
			p.set(map[int]string{6: socket(101)}, line(other, "0A", 101), "")
			w := watch(t, p)
			w.passes(t, time.Minute)
			p.set(map[int]string{5: socket(100), 6: socket(101)}, line(anywhere, "0A", 100)+line(other, "0A", 101), "")
			w.passes(t, time.Minute)
			p.set(map[int]string{6: socket(101)}, line(other, "0A", 101), "")
			w.ends(t, hostwatch.Stops)
		},
		"ParentChanges": func(t *testing.T, p *proc) {
			p.set(map[int]string{5: socket(100)}, line(anywhere, "0A", 100), "")
			w := watch(t, p)
			w.passes(t, time.Minute)
			w.parent.Store(1)
			w.ends(t, hostwatch.Gone)
		},
		"ParentChangesAndProcCannotBeRead": func(t *testing.T, p *proc) {
			p.set(map[int]string{5: socket(100)}, line(anywhere, "0A", 100), "")
			w := watch(t, p)
			w.passes(t, time.Minute)
			w.parent.Store(1)
			p.fail(fs.ErrNotExist)
			w.ends(t, hostwatch.Gone)
		},
		"LaterReadFailsAndIsRepeated": func(t *testing.T, p *proc) {
			p.set(map[int]string{5: socket(100)}, line(anywhere, "0A", 100), "")
			w := watch(t, p)
			w.passes(t, time.Second)
			p.fail(fs.ErrInvalid)
			w.passes(t, time.Minute)
			p.set(nil, "", "")
			p.fail(nil)
			w.ends(t, hostwatch.Stops)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newProc()) })
		})
	}
}

func TestWatch_StopIsBlind(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"Forbidden": fs.ErrPermission, "NoProc": fs.ErrNotExist} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProc()
			p.fail(err)
			w := hostwatch.Watch{Proc: p, Host: host, Parent: func() int { return host }}
			if event, got := w.Stop(t.Context()); !errors.Is(got, hostwatch.ErrBlind) || !errors.Is(got, err) {
				t.Errorf("%q, %v, want %v", event, got, hostwatch.ErrBlind)
			}
			if got := hostwatch.Check(p, host); !errors.Is(got, hostwatch.ErrBlind) {
				t.Errorf("check: %v, want %v", got, hostwatch.ErrBlind)
			}
		})
	}
}

func TestWatch_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProc()
		p.set(nil, "", "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w := hostwatch.Watch{Proc: p, Host: host, Parent: func() int { return host }}
		if _, err := w.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stop: %v, want %v", err, context.DeadlineExceeded)
		}
		if err := w.End(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("end: %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

func TestPorts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"None":        {nil, []string{"dotnet", "host.dll"}, ""},
		"OfTheURLs":   {map[string]string{"ASPNETCORE_URLS": "http://+:80;https://[::]:443/"}, nil, "80 443"},
		"OfTheLine":   {nil, []string{"dotnet", "host.dll", "--urls", "http://127.0.0.1:7071"}, "7071"},
		"OfTheLine=":  {nil, []string{"dotnet", "host.dll", "--urls=http://127.0.0.1:7071"}, "7071"},
		"OfThePorts":  {map[string]string{"ASPNETCORE_HTTP_PORTS": "8080;8081"}, nil, "8080 8081"},
		"WithoutPort": {map[string]string{"ASPNETCORE_URLS": "http://localhost"}, []string{"--urls"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProc()
			p.files = fstest.MapFS{fmt.Sprintf("%d/cmdline", host): {Data: []byte(strings.Join(c.args, "\x00") + "\x00")}}
			got := hostwatch.Ports(p, host, func(name string) string { return c.env[name] })
			if want := strings.Fields(c.want); !slices.Equal(got, want) {
				t.Errorf("ports %q, want %q", got, want)
			}
		})
	}
}
