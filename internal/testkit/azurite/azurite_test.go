package azurite_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"weir/internal/testkit/azurite"
)

func TestMain(m *testing.M) { azurite.Main(m) }

func startAzurite(t *testing.T, o azurite.Options) *azurite.Process {
	t.Helper()
	p, err := azurite.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})

	return p
}

func TestStart_FreePorts(t *testing.T) {
	t.Parallel()
	p := startAzurite(t, azurite.Options{})
	ports := p.Ports()
	for _, port := range []int{ports.Blob, ports.Queue, ports.Table} {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/%s?comp=list", port,
			azurite.Account))
		if err != nil {
			t.Fatal(err)
		}

		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if got := resp.Header.Get("Server"); !strings.HasPrefix(got, "Azurite") {
			t.Errorf("port %d: Server = %q, want Azurite", port, got)
		}

		if want := fmt.Sprintf("http://127.0.0.1:%d/%s;", port,
			azurite.Account); !strings.Contains(p.ConnectionString(), want) {
			t.Errorf("the connection string lacks %s", want)
		}
	}

	http.DefaultClient.CloseIdleConnections()
}

// Two accounts of one Azurite have queues of their own, also under the same name.
func TestStart_AccountsShareNothing(t *testing.T) {
	t.Parallel()
	p := startAzurite(t, azurite.Options{Accounts: []string{"first", "second"}})

	for account, want := range map[string]int{"first": 1, "second": 0} {
		connection := p.ConnectionStringOf(account)
		service, err := azqueue.NewServiceClientFromConnectionString(connection, nil)
		if err != nil {
			t.Fatal(err)
		}

		for i := range want {
			name := fmt.Sprintf("queue-%d", i)
			if _, err := service.CreateQueue(t.Context(), name, nil); err != nil {
				t.Fatal(err)
			}
		}
	}

	for account, want := range map[string]int{"first": 1, "second": 0} {
		connection := p.ConnectionStringOf(account)
		service, err := azqueue.NewServiceClientFromConnectionString(connection, nil)
		if err != nil {
			t.Fatal(err)
		}

		page, err := service.NewListQueuesPager(nil).NextPage(t.Context())
		if err != nil || len(page.Queues) != want {
			t.Errorf("the account %s has %d queues, %v, want %d", account, len(page.Queues), err,
				want)
		}
	}

	http.DefaultClient.CloseIdleConnections()
}

func TestStart_SameDirAndPortsAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	first := startAzurite(t, azurite.Options{Dir: dir})
	ports := first.Ports()
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}

	<-first.Done()
	if files, err := os.ReadDir(dir); err != nil || len(files) == 0 {
		t.Fatalf("got %d saved files, %v, want some", len(files), err)
	}

	again := startAzurite(t, azurite.Options{Dir: dir, BlobPort: ports.Blob, QueuePort: ports.Queue,
		TablePort: ports.Table})
	if again.Ports() != ports {
		t.Errorf("ports = %v, want %v", again.Ports(), ports)
	}
}

func TestStart_PortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = azurite.Start(t.Context(), azurite.Options{QueuePort: l.Addr().(*net.TCPAddr).Port})
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("err = %v, want one that names %s", err, l.Addr())
	}
}

func TestStart_NotInstalled(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := azurite.Start(t.Context(), azurite.Options{})
	if err == nil || !strings.Contains(err.Error(), "make azurite") {
		t.Errorf("err = %v, want one with \"make azurite\"", err)
	}
}

func TestProcess_Stop(t *testing.T) {
	t.Parallel()
	p := startAzurite(t, azurite.Options{})
	idle := &http.Transport{}
	defer idle.CloseIdleConnections()
	resp, err := (&http.Client{Transport: idle}).Get(fmt.Sprintf("http://127.0.0.1:%d/",
		p.Ports().Table))
	if err != nil {
		t.Fatal(err)
	}

	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close() // the client keeps the idle connection open, which must not delay Stop

	for range 2 {
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
	}

	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.Ports().Table))
	if err == nil {
		_ = c.Close()
		t.Error("Azurite listens after Stop, want its port closed")
	}
}

func TestShared_OneProcess(t *testing.T) {
	t.Parallel()
	if a, b := azurite.Shared(t), azurite.Shared(t); a != b {
		t.Errorf("two processes: %s and %s, want one", a, b)
	}
}
