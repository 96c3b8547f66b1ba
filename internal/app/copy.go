package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"weir/internal/lane/transfer"
	"weir/internal/settings"
	"weir/internal/storage/azure"
	"weir/internal/storage/embedded"
	"weir/internal/storage/folder"
)

// AzurePlace names the storage account of the environment in place of a folder.
const AzurePlace = "azure"

// copyLease is the length of the leases of weir copy. After a kill the next command waits so long.
const copyLease = 15 * time.Second

// CopyOptions has the options of the command weir copy.
type CopyOptions struct {
	From, To string // a folder, or AzurePlace
	Progress func(string)
	Log      *slog.Logger
}

// CopyStore moves everything from one store to another, or continues a move. It needs no weir.yaml.
func CopyStore(ctx context.Context, env func(string) string, o CopyOptions) (r transfer.Report,
	err error) {
	from, closeFrom, err := openPlace(env, o.From, true)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, closeFrom()) }()
	to, closeTo, err := openPlace(env, o.To, false)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, closeTo()) }()

	return o.mover(from, to).Run(ctx)
}

// UndoCopy gives up a move from a store.
func UndoCopy(ctx context.Context, env func(string) string, o CopyOptions) error {
	from, closeFrom, err := openPlace(env, o.From, true)
	if err != nil {
		return err
	}

	return errors.Join(o.mover(from, transfer.Store{}).Undo(ctx), closeFrom())
}

func (o CopyOptions) mover(from, to transfer.Store) transfer.Mover {
	return transfer.Mover{From: from, To: to, Lease: copyLease, Now: time.Now, Progress: o.Progress,
		Log: o.Log}
}

// openPlace opens a folder, which no other process may have open, or the storage account.
func openPlace(env func(string) string, name string, isSource bool) (s transfer.Store,
	closeIt func() error, err error) {
	if name == AzurePlace {
		return openAzurePlace(env)
	}

	if isSource && !embedded.Exists(name) {
		return s, nil, fmt.Errorf("%s: %w", name, embedded.ErrNoStore)
	}

	opened, err := folder.Own(name, embedded.Options{Program: "weir copy"})
	if err != nil {
		return s, nil, err
	}

	path, err := filepath.Abs(name)
	if err != nil {
		path = name
	}

	nothing := func(context.Context) error { return nil }

	return transfer.Store{Name: "the folder " + path, Table: opened.Table(), Partitions: opened,
		Bodies: opened.Bodies(), Leases: opened.Leases(), Inbox: opened.Inbox(),
		Accepted: opened.Accepted(),
		Rejected: opened.Rejected(), Ensure: nothing, EnsureFiles: nothing}, opened.Close, nil
}

func openAzurePlace(env func(string) string) (s transfer.Store, closeIt func() error, err error) {
	from := settings.Settings{Prefix: cmp.Or(env("WEIR_PREFIX"), "weir")}
	withoutFolder := func(name string) string {
		if name == settings.DataVariable {
			return ""
		}
		return env(name)
	}
	if err := from.ReadStorage(withoutFolder); err != nil {
		return s, nil, err
	}

	a, err := azure.Open(azure.Config{ConnectionString: string(from.Storage),
		Identity: from.Identity, Prefix: from.Prefix})
	if err != nil {
		return s, nil, err
	}

	return transfer.Store{Name: "the storage account (WEIR_PREFIX " + from.Prefix + ")",
			Table:      a.Table(),
			Partitions: a, Bodies: a.Bodies(), Leases: a.Leases(), Inbox: a.Inbox(),
			Accepted: a.Accepted(),
			Rejected: a.Rejected(), Ensure: a.Ensure, EnsureFiles: a.EnsureFiles},
		func() error { a.Close(); return nil }, nil
}
