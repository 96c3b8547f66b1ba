package notify_test

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/notify"
	"weir/internal/weir"
)

func TestCallbacks_Check(t *testing.T) {
	t.Parallel()
	c := notify.Callbacks{AllowedHosts: []string{"hooks.example.com", "*.example.org",
		"other.example.com:8443", "[2001:4860::1]"}}

	for address, ok := range map[string]bool{
		"https://hooks.example.com/done?id=1":       true,
		"https://HOOKS.example.com/":                true,
		"https://hooks.example.com:443/":            true,
		"https://hooks.example.com":                 true,
		"https://a.example.org/":                    true,
		"https://a.b.example.org/":                  true,
		"https://other.example.com:8443/":           true,
		"https://[2001:4860::1]/":                   true,
		"https://hooks.example.com:8443/":           false,
		"https://other.example.com/":                false,
		"https://example.org/":                      false,
		"https://notexample.org/":                   false,
		"https://hooks.example.com.evil.example/":   false,
		"https://evil.example/hooks.example.com":    false,
		"https://hooks.example.com@evil.example/":   false,
		"https://user@hooks.example.com/":           false,
		"https://user:word@hooks.example.com/":      false,
		"https://hooks.example.com./":               false,
		"http://hooks.example.com/":                 false,
		"ftp://hooks.example.com/":                  false,
		"//hooks.example.com/":                      false,
		"/done":                                     false,
		"hooks.example.com":                         false,
		"https:hooks.example.com":                   false,
		"https://":                                  false,
		"https://:443/":                             false,
		"https://hooks.example.com/#there":          false,
		"https://hooks.example.com/#":               false,
		"https://hooks.example.com/\r\nX: y":        false,
		"https://hooks.example.com/a b":             false,
		"https://hooks.ëxample.com/":                false,
		"https://hooks.example.com\\@evil.example/": false,
		"": false,
		"https://hooks.example.com/" + strings.Repeat("x", 2048-26):       true,
		"https://hooks.example.com/" + strings.Repeat("x", 2048-26) + "x": false,
	} {
		err := c.Check(address)
		if (err == nil) != ok || err != nil && weir.KindOf(err) != weir.Invalid {
			t.Errorf("%.80q: got the error %v; want it accepted: %v, or else an error of kind Invalid", address, err,
				ok)
		}

		var ours *weir.Error
		if errors.As(err, &ours) &&
			(len(ours.Problems) != 1 || ours.Problems[0].Path != "Weir-Callback") {
			t.Errorf("%.80q: got the problems %+v, want one with the path Weir-Callback", address,
				ours.Problems)
		}
	}

	c.AllowPrivate = true
	if err := c.Check("http://hooks.example.com/"); err != nil {
		t.Errorf("http with AllowPrivate: got %v, want no error", err)
	}

	if err := (notify.Callbacks{}).Check("https://hooks.example.com/"); err == nil ||
		!strings.Contains(err.Error(), "callbacks are off") {
		t.Errorf("without allowed hosts: got %v, want an error with \"callbacks are off\"", err)
	}
}

func TestCheck_NamesEveryProblem(t *testing.T) {
	t.Parallel()
	receivers := []notify.Receiver{
		{URL: "http://ops.example.com/", Events: []string{"message.dead", "message.lost"},
			Contracts: []string{"none"}, BehindBy: 1},
		{URL: "https://ops.example.com/", BehindBy: 1e12},
		{URL: "https://ops.example.com/", Events: notify.Events, BehindBy: 1e12},
	}

	problems := notify.Check(receivers,
		notify.Callbacks{AllowedHosts: []string{"*", "https://x.example.com", "a b",
			"x.example.com/path", "*.*.example.com", "fine.example.com:8443"}}, []string{"article"})
	var text string
	for _, p := range problems {
		text += p.Error() + "\n"
	}

	for _, want := range []string{`notify[0].url: the address must begin with https://`,
		`notify[0].events[1]: there is no event "message.lost"`,
		`notify[0].contracts[0]: there is no contract "none"`,
		"notify[0].pausedFor", "notify[1].events is empty", "notify[2].url: there is a receiver",
		`"*" is not a host`, `"https://x.example.com" is not a host`, `"a b" is not a host`,
		`"x.example.com/path" is not a host`, `"*.*.example.com" is not a host`} {
		if !strings.Contains(text, want) {
			t.Errorf("got the problems\n%s\nwant %q among them", text, want)
		}
	}

	if strings.Contains(text, "fine.example.com") {
		t.Errorf("got a problem with fine.example.com, want none:\n%s", text)
	}
}

func TestPublic_RefusesEveryPrivateAddress(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"127.0.0.1:443": false, "127.8.9.1:443": false, "10.1.2.3:443": false,
		"172.16.0.1:80":     false,
		"172.31.255.255:80": false, "192.168.1.1:443": false,
		"169.254.169.254:80": false, "168.63.129.16:80": false, "100.64.0.1:443": false,
		"100.127.255.255:443": false,
		"0.0.0.0:443":         false, "224.0.0.1:443": false, "255.255.255.255:443": false,
		"[::1]:443": false, "[::]:443": false, "[fe80::1%25eth0]:443": false,
		"[fe80::1%eth0]:443": false,
		"[fc00::1]:443":      false, "[fd12::1]:443": false, "[ff02::1]:443": false,
		"[::127.0.0.1]:443": false, "[::10.0.0.1]:443": false, "[::ffff:0:10.0.0.1]:443": false,
		"[64:ff9b:1::a00:1]:443": false, "[100::1]:443": false, "[fec0::1]:443": false,
		"[2001::1]:443": false, "[2001:10::1]:443": false, "[2001:db8::1]:443": false,
		"[3fff::1]:443": false,
		"[5f00::1]:443": false, "192.88.99.1:443": false,
		"[::ffff:127.0.0.1]:443": false, "[::ffff:10.0.0.1]:443": false,
		"[64:ff9b::7f00:1]:443": false,
		"[2002:7f00:1::]:443":   false,
		"nonsense":              false, "8.8.8.8:443": true, "172.32.0.1:443": true,
		"100.128.0.1:443":            true,
		"[2001:4860:4860::8888]:443": true, "[::ffff:8.8.8.8]:443": true,
		"[2600::1]:443": true, "[2a00::1]:443": true, "[2001:200::1]:443": true,
	} {
		if err := notify.Public(address); (err == nil) != ok {
			t.Errorf("%s: got the error %v, want the address allowed: %v", address, err, ok)
		}
	}
}

// The transport refuses a name that resolves to this machine, unless private addresses are allowed.
func TestTransport_RefusesNamesOfThisMachine(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	for private, want := range map[bool]int32{false: 0, true: 1} {
		asked.Store(0)
		transport := notify.NewTransport(private)
		if transport.Proxy != nil {
			t.Error("the transport has a proxy, want none")
		}

		resp, err := (&http.Client{Transport: transport}).Get("http://localhost:" + port + "/")
		if err == nil {
			resp.Body.Close()
		}

		transport.CloseIdleConnections()

		if asked.Load() != want || (err == nil) != private ||
			err != nil && !strings.Contains(err.Error(), "not a public address") {
			t.Errorf("private addresses allowed: %v; the server got %d requests, error %v; want %d requests",
				private, asked.Load(), err, want)
		}
	}
}

// notified is an observer that sends each event with its outcome to a channel.
type notified chan string

func (n notified) Notified(event, outcome string) { n <- event + " " + outcome }

// The Sender does not connect to a name that resolves to this machine, unless private addresses are
// allowed. The test has a receiver and a callback with such a name.
func TestSender_DialsNoPrivateAddress(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}

	server.StartTLS()
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	for _, private := range []bool{false, true} {
		w, told := newWorld(t), make(notified, 10)
		address := "https://localhost:" + port + "/"
		s := notify.New(notify.Config{Store: w.store, Leases: w.account.Leases(), Now: time.Now,
			Log: quietLog, Observer: told,
			Callbacks: notify.Callbacks{AllowedHosts: []string{"localhost:" + port},
				AllowPrivate: private, Secret: secretOf(t, knownSecret)},
			Receivers: []notify.Receiver{{URL: address + "ops", Secret: secretOf(t, knownSecret),
				Events: notify.Events, AllowPrivate: private}}})

		w.store.Notifier = s
		connections.Store(0)
		w.commitFinal(weir.Dead, w.appendMessage(address))

		for range 2 {
			// If private addresses are allowed, the Sender connects. The try still fails, because
			// no authority has signed the server's certificate.
			if got := <-told; got != "message.dead retry" {
				t.Errorf("private addresses allowed: %v; the observer got %q, want \"message.dead retry\"",
					private, got)
			}
		}

		if reached := connections.Load() > 0; reached != private {
			t.Errorf("private addresses allowed: %v; the server got a connection: %v, want %v",
				private, reached, private)
		}

		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
