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

	"weir/internal/residence/hostwatch"
)

const (
	host   = 41 // the host's process id
	header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
)

// fakeProc is a /proc with one host. A test changes the files during a watch.
type fakeProc struct {
	mu    sync.Mutex
	files fstest.MapFS
	err   error // error that Open returns; nil = Open opens the file
	lists int   // number of times that net/tcp, the list of IPv4 connections, was opened
}

func newProc() *fakeProc { return &fakeProc{files: fstest.MapFS{}} }

// setError makes each later call of Open fail with err. If err is nil, later calls do not fail.
func (p *fakeProc) setError(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *fakeProc) Open(name string) (fs.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}

	if strings.HasSuffix(name, "net/tcp") {
		p.lists++
	}

	return p.files.Open(name)
}

func (p *fakeProc) countListReads() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lists
}

func (p *fakeProc) ReadLink(name string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.files.ReadLink(name)
}

func (p *fakeProc) Lstat(name string) (fs.FileInfo, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.files.Lstat(name)
}

// setSockets sets the host's descriptors and lists of connections. "descriptors" maps a
// descriptor's number to the target of its link. "tcp" and "tcp6" are the lines of net/tcp and
// net/tcp6. If tcp6 is "none", the file net/tcp6 does not exist.
func (p *fakeProc) setSockets(descriptors map[int]string, tcp, tcp6 string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files = fstest.MapFS{fmt.Sprintf("%d/fd", host): {Mode: fs.ModeDir}}
	for n, target := range descriptors {
		p.files[fmt.Sprintf("%d/fd/%d", host, n)] = &fstest.MapFile{Mode: fs.ModeSymlink,
			Data: []byte(target)}
	}

	p.files[fmt.Sprintf("%d/net/tcp", host)] = &fstest.MapFile{Data: []byte(header + tcp)}
	if tcp6 != "none" {
		p.files[fmt.Sprintf("%d/net/tcp6", host)] = &fstest.MapFile{Data: []byte(header + tcp6)}
	}
}

// socketLine returns a line of /proc/net/tcp.
func socketLine(address, state string, inode int) string {
	return fmt.Sprintf("   0: %s 00000000:0000 %s 00000000:00000000 00:00000000 00000000  1000        0 %d 1 "+
		"00000000506b7761 100 0 0 10 0\n", address, state, inode)
}

func socketLink(inode int) string { return fmt.Sprintf("socket:[%d]", inode) }

// runningWatch is a Watch whose Stop runs in a goroutine. After "ended" is closed, event, err and
// took have the result.
type runningWatch struct {
	*hostwatch.Watch
	parent atomic.Int64
	event  hostwatch.Event
	err    error
	took   time.Duration // duration of Stop
	ended  chan struct{}
}

func startWatch(t *testing.T, p *fakeProc, ports ...string) *runningWatch {
	w := &runningWatch{ended: make(chan struct{})}
	w.parent.Store(host)
	w.Watch = &hostwatch.Watch{Proc: p, Host: host, Ports: ports,
		Parent: func() int { return int(w.parent.Load()) }}
	began := time.Now()
	go func() {
		defer close(w.ended)
		w.event, w.err = w.Stop(t.Context())
		w.took = time.Since(began)
	}()

	return w
}

// expectNoEnd waits for d, and checks that the watch has not ended.
func (w *runningWatch) expectNoEnd(t *testing.T, d time.Duration) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()

	select {
	case <-w.ended:
		t.Fatalf("ended with %q (%v) after %s, want it to continue", w.event, w.err, w.took)
	default:
	}
}

// expectEnd checks that the watch ends with the event "want" within a tenth of a second.
func (w *runningWatch) expectEnd(t *testing.T, want hostwatch.Event) {
	t.Helper()
	began := time.Now()
	<-w.ended
	if took := time.Since(began); w.event != want || w.err != nil || took > 100*time.Millisecond {
		t.Errorf("%q (%v) after %s, want %q within 100ms", w.event, w.err, took, want)
	}
}

func TestWatch_Stop(t *testing.T) {
	t.Parallel()

	// ports 80, 8080, 39099
	const anywhere, own, other = "00000000:0050", "0100007F:1F90", "0100007F:98BB"
	both := map[int]string{5: socketLink(100), 6: socketLink(101)}
	for name, test := range map[string]func(t *testing.T, p *fakeProc){
		"SocketOpensAndCloses": func(t *testing.T, p *fakeProc) {
			p.setSockets(map[int]string{1: "pipe:[7]", 5: "/dev/null"},
				socketLine(anywhere, "0A", 999), "")
			w := startWatch(t, p)
			w.expectNoEnd(t, time.Hour) // the host has not begun to listen
			p.setSockets(map[int]string{1: "pipe:[7]", 5: socketLink(100), 6: socketLink(101)},
				socketLine(anywhere, "0A", 100)+socketLine(anywhere, "01", 101), "")
			w.expectNoEnd(t, time.Hour)
			p.setSockets(map[int]string{1: "pipe:[7]", 6: socketLink(101)},
				socketLine(anywhere, "01", 101), "")
			w.expectEnd(t, hostwatch.Stops)
		},
		"DescriptorIsReusedByAnotherSocket": func(t *testing.T, p *fakeProc) {
			p.setSockets(map[int]string{5: socketLink(100)},
				socketLine(anywhere, "0A", 100), "none")
			w := startWatch(t, p)
			w.expectNoEnd(t, time.Second)
			p.setSockets(map[int]string{5: socketLink(102)},
				socketLine(anywhere, "01", 102), "none")
			w.expectEnd(t, hostwatch.Stops)
		},
		"SocketMovesToAnotherDescriptor": func(t *testing.T, p *fakeProc) {
			p.setSockets(map[int]string{5: socketLink(100)}, socketLine(anywhere, "0A", 100), "")
			w := startWatch(t, p)
			w.expectNoEnd(t, time.Second)
			p.setSockets(map[int]string{9: socketLink(100)}, socketLine(anywhere, "0A", 100), "")
			w.expectNoEnd(t, time.Minute)
			p.setSockets(nil, "", "")
			w.expectEnd(t, hostwatch.Stops)
		},
		"SocketOfTheNamedPortIsWatched": func(t *testing.T, p *fakeProc) {
			p.setSockets(both, socketLine(own, "0A", 100)+socketLine(other, "0A", 101), "")
			w := startWatch(t, p, "8080")
			w.expectNoEnd(t, time.Second)
			p.setSockets(map[int]string{5: socketLink(100)}, socketLine(own, "0A", 100), "")
			w.expectNoEnd(t, time.Minute)
			p.setSockets(map[int]string{6: socketLink(101)}, socketLine(other, "0A", 101), "")
			w.expectEnd(t, hostwatch.Stops)
		},
		"SocketThatOtherMachinesReachIsWatched": func(t *testing.T, p *fakeProc) {
			const six = "00000000000000000000000000000000:0050"
			p.setSockets(both, socketLine(other, "0A", 101), socketLine(six, "0A", 100))
			w := startWatch(t, p, "4711")
			w.expectNoEnd(t, time.Second)
			p.setSockets(map[int]string{6: socketLink(101)}, socketLine(other, "0A", 101), "")
			w.expectEnd(t, hostwatch.Stops)
		},
		"LastOfSeveralCloses": func(t *testing.T, p *fakeProc) {
			p.setSockets(both, socketLine(own, "0A", 100)+socketLine(other, "0A", 101), "")
			w := startWatch(t, p)
			w.expectNoEnd(t, time.Second)
			p.setSockets(map[int]string{6: socketLink(101)}, socketLine(other, "0A", 101), "")
			w.expectNoEnd(t, time.Minute)
			p.setSockets(map[int]string{6: socketLink(103)}, socketLine(other, "06", 103), "")
			w.expectEnd(t, hostwatch.Stops)
		},
		"SocketThatOpensLaterIsWatched": func(t *testing.T, p *fakeProc) {
			p.setSockets(map[int]string{6: socketLink(101)}, socketLine(other, "0A", 101), "")
			w := startWatch(t, p)
			w.expectNoEnd(t, time.Minute)
			p.setSockets(both, socketLine(anywhere, "0A", 100)+socketLine(other, "0A", 101), "")
			w.expectNoEnd(t, time.Minute)
			p.setSockets(map[int]string{6: socketLink(101)}, socketLine(other, "0A", 101), "")
			w.expectEnd(t, hostwatch.Stops)
		},
		"ParentChanges": func(t *testing.T, p *fakeProc) {
			p.setSockets(map[int]string{5: socketLink(100)}, socketLine(anywhere, "0A", 100), "")
			w := startWatch(t, p)
			w.expectNoEnd(t, time.Minute)
			w.parent.Store(1)
			w.expectEnd(t, hostwatch.Gone)
		},
		"ParentChangesAndProcCannotBeRead": func(t *testing.T, p *fakeProc) {
			p.setSockets(map[int]string{5: socketLink(100)}, socketLine(anywhere, "0A", 100), "")
			w := startWatch(t, p)
			w.expectNoEnd(t, time.Minute)
			w.parent.Store(1)
			p.setError(fs.ErrNotExist)
			w.expectEnd(t, hostwatch.Gone)
		},
		"LaterReadFailsAndIsRepeated": func(t *testing.T, p *fakeProc) {
			p.setSockets(map[int]string{5: socketLink(100)}, socketLine(anywhere, "0A", 100), "")
			w := startWatch(t, p)
			w.expectNoEnd(t, time.Second)
			p.setError(fs.ErrInvalid)
			w.expectNoEnd(t, time.Minute)
			p.setSockets(nil, "", "")
			p.setError(nil)
			w.expectEnd(t, hostwatch.Stops)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newProc()) })
		})
	}
}

// With thousands of connections, each read of their list takes milliseconds. So the watch reads the
// list seldom after it has found all ports.
func TestWatch_ReadsConnectionsSeldomOnceAllPortsAreFound(t *testing.T) {
	t.Parallel()
	const own, second = "0100007F:1F90", "0100007F:1F91" // ports 8080, 8081
	for name, c := range map[string]struct {
		tcp  string
		most int // wanted number of reads in the first minute: most, or most-1
	}{
		"one of two is found": {socketLine(own, "0A", 100), 61},
		"both are found":      {socketLine(own, "0A", 100) + socketLine(second, "0A", 101), 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newProc()
				p.setSockets(map[int]string{5: socketLink(100), 6: socketLink(101)}, c.tcp, "")
				w := startWatch(t, p, "8080", "8081")
				w.expectNoEnd(t, time.Minute)

				if n := p.countListReads(); n > c.most || n < c.most-1 {
					t.Errorf("got %d reads of the list of connections in a minute, want %d or %d",
						n, c.most-1, c.most)
				}

				p.setSockets(nil, "", "")
				w.expectEnd(t, hostwatch.Stops)
			})
		})
	}
}

func TestWatch_StopIsBlind(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"Forbidden": fs.ErrPermission,
		"NoProc": fs.ErrNotExist} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProc()
			p.setError(err)
			w := hostwatch.Watch{Proc: p, Host: host, Parent: func() int { return host }}
			if event, got := w.Stop(t.Context()); !errors.Is(got, hostwatch.ErrBlind) ||
				!errors.Is(got, err) {
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
		p.setSockets(nil, "", "")
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
		"None": {nil, []string{"dotnet", "host.dll"}, ""},
		"OfTheURLs": {map[string]string{"ASPNETCORE_URLS": "http://+:80;https://[::]:443/"},
			nil, "80 443"},
		"OfTheLine": {nil, []string{"dotnet", "host.dll", "--urls", "http://127.0.0.1:7071"},
			"7071"},
		"OfTheLine=": {nil, []string{"dotnet", "host.dll", "--urls=http://127.0.0.1:7071"},
			"7071"},
		"OfThePorts": {map[string]string{"ASPNETCORE_HTTP_PORTS": "8080;8081"}, nil, "8080 8081"},
		"WithoutPort": {map[string]string{"ASPNETCORE_URLS": "http://localhost"},
			[]string{"--urls"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProc()
			p.files = fstest.MapFS{fmt.Sprintf("%d/cmdline",
				host): {Data: []byte(strings.Join(c.args, "\x00") + "\x00")}}
			got := hostwatch.Ports(p, host, func(name string) string { return c.env[name] })
			if want := strings.Fields(c.want); !slices.Equal(got, want) {
				t.Errorf("ports %q, want %q", got, want)
			}
		})
	}
}
