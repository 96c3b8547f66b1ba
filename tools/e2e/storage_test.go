package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"weir/internal/testkit/azurite"
)

// storageAccount is an account of an Azurite. The account has its own tables, queues and blobs.
type storageAccount struct {
	*azurite.Process
	name string
	dir  string // folder of the data, if the process belongs to the test alone
}

// ConnectionString returns the connection string of the account.
func (a *storageAccount) ConnectionString() string { return a.ConnectionStringOf(a.name) }

// sharedStorage has the processes of Azurite that the tests share. Each system has its own account
// there, because the start of an Azurite takes more processor time than many a test. One Azurite
// uses only one processor, and on a busy machine gets no larger share of it than each of the many
// handlers, so there are several. Their data is in memory.
var sharedStorage struct {
	mu        sync.Mutex
	processes []*azurite.Process
	used      int // number of accounts that have been handed out
}

const (
	sharedProcesses    = 4
	accountsPerProcess = 200
)

// useSharedStorage returns an account that no other system has.
func useSharedStorage(t *testing.T) *storageAccount {
	t.Helper()
	sharedStorage.mu.Lock()
	defer sharedStorage.mu.Unlock()

	// Each full round of accounts has processes of its own.
	round := sharedStorage.used / (sharedProcesses * accountsPerProcess)
	n := round*sharedProcesses + sharedStorage.used%sharedProcesses
	if n == len(sharedStorage.processes) {
		sharedStorage.processes = append(sharedStorage.processes, startStorage(t, azurite.Options{
			Accounts: nameAccounts()}))
	}

	account := &storageAccount{Process: sharedStorage.processes[n],
		name: nameAccount(sharedStorage.used / sharedProcesses % accountsPerProcess)}
	sharedStorage.used++

	return account
}

func nameAccount(n int) string { return fmt.Sprintf("weir%d", n) }

func nameAccounts() []string {
	names := make([]string, accountsPerProcess)
	for n := range names {
		names[n] = nameAccount(n)
	}
	return names
}

// stopSharedStorage stops the processes that useSharedStorage has started.
func stopSharedStorage() error {
	sharedStorage.mu.Lock()
	defer sharedStorage.mu.Unlock()
	var errs []error
	for _, p := range sharedStorage.processes {
		errs = append(errs, p.Stop())
	}
	return errors.Join(errs...)
}

// startOwnStorage starts an Azurite that no other test uses. The data outlives a restart.
func startOwnStorage(t *testing.T) *storageAccount {
	t.Helper()
	a := &storageAccount{name: azurite.Account, dir: t.TempDir()}
	a.Process = startStorage(t, azurite.Options{Dir: a.dir})
	t.Cleanup(func() { a.Stop() })
	return a
}

// restart starts a stopped process again, with the same data and the same ports.
func (a *storageAccount) restart(t *testing.T) {
	t.Helper()
	ports := a.Ports()
	a.Process = startStorage(t, azurite.Options{Dir: a.dir, BlobPort: ports.Blob,
		QueuePort: ports.Queue, TablePort: ports.Table})
}

func startStorage(t *testing.T, o azurite.Options) *azurite.Process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), slowdown*startLimit)
	defer cancel()
	p, err := azurite.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}

	return p
}
