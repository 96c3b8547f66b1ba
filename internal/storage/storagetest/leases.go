package storagetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/internal/storage"
)

const shortest = 15 * time.Second

// Ids of two holders. Storage accepts only UUIDs.
const (
	ours   = "0f8fad5b-d9cb-469f-a165-70867728950e"
	theirs = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
)

// Leases is the suite for storage.Leases.
func Leases(t *testing.T, h LeaseHarness) {
	t.Helper()

	// Expiry moves the clock that all tests share. So Expiry runs alone, before the other tests.
	t.Run("Expiry", func(t *testing.T) { leaseExpiry(t, h.Open(t), h.Advance) })
	runEach(t, h.Open, map[string]func(*testing.T, storage.Leases){
		"OneHolder":         leaseOneHolder,
		"OneOfMany":         leaseOneOfMany,
		"Release/Free":      leaseReleased,
		"Acquire/Again":     leaseAgain,
		"Acquire/Length":    leaseLength,
		"Renew/NeverTaken":  leaseNeverTaken,
		"Names/Independent": leaseNames,
		"ContextEnded":      leaseContextEnded,
	})
}

// leaseExpiry tests all cases of expiry within the same 17 s, because with the emulator each wait
// takes real time. The shortest lease lasts 15 s.
func leaseExpiry(t *testing.T, l storage.Leases, advance func(time.Duration)) {
	ctx := t.Context()
	for _, name := range []string{"kept", "lost", "idle", "renewed", "reacquired", "returned",
		"passed"} {
		requireNoError(t, l.Acquire(ctx, name, ours, shortest))
	}

	advance(8 * time.Second)
	requireNoError(t, l.Renew(ctx, "renewed", ours))
	requireNoError(t, l.Acquire(ctx, "reacquired", ours, shortest))
	for _, name := range []string{"lost", "renewed", "reacquired"} {
		wantKind(t, name+" after 8 s", l.Acquire(ctx, name, theirs, shortest), storage.Conflict)
	}

	advance(9 * time.Second)
	for _, name := range []string{"renewed", "reacquired"} {
		wantKind(t, name+" after 17 s", l.Acquire(ctx, name, theirs, shortest), storage.Conflict)
	}

	requireNoError(t, l.Acquire(ctx, "lost", theirs, shortest))
	wantKind(t, "renew another id's lease", l.Renew(ctx, "lost", ours), storage.Conflict)
	wantKind(t, "release another id's lease", l.Release(ctx, "lost", ours), storage.Conflict)
	wantKind(t, "acquire another id's lease", l.Acquire(ctx, "lost", ours, shortest),
		storage.Conflict)
	requireNoError(t, l.Renew(ctx, "lost", theirs))

	requireNoError(t, l.Renew(ctx, "kept", ours)) // an expired lease that no other id has acquired
	wantKind(t, "acquire a lease that was renewed late", l.Acquire(ctx, "kept", theirs, shortest),
		storage.Conflict)
	requireNoError(t, l.Acquire(ctx, "idle", ours, shortest))
	requireNoError(t, l.Release(ctx, "returned", ours))
	requireNoError(t, l.Acquire(ctx, "returned", theirs, shortest))

	requireNoError(t, l.Acquire(ctx, "passed", theirs, shortest))
	requireNoError(t, l.Release(ctx, "passed", theirs))
	wantKind(t, "renew a lease that another id had since", l.Renew(ctx, "passed", ours),
		storage.Conflict)
}

func leaseOneHolder(t *testing.T, l storage.Leases) {
	ctx := t.Context()
	requireNoError(t, l.Acquire(ctx, "1.0", ours, shortest))
	wantKind(t, "acquire by another", l.Acquire(ctx, "1.0", theirs, shortest), storage.Conflict)
	wantKind(t, "renew by another", l.Renew(ctx, "1.0", theirs), storage.Conflict)
	wantKind(t, "release by another", l.Release(ctx, "1.0", theirs), storage.Conflict)
	requireNoError(t, l.Renew(ctx, "1.0", ours))
	wantKind(t, "acquire by another after renewal", l.Acquire(ctx, "1.0", theirs, shortest),
		storage.Conflict)
	requireNoError(t, l.Release(ctx, "1.0", ours))
}

// leaseOneOfMany lets several ids acquire a lease concurrently. The blob of the lease does not
// exist yet. Exactly one id must get the lease.
func leaseOneOfMany(t *testing.T, l storage.Leases) {
	const holders = 8
	won := make(chan bool, holders)
	for i := range holders {
		go func() {
			err := l.Acquire(t.Context(), "1.0",
				fmt.Sprintf("0f8fad5b-d9cb-469f-a165-7086772895%02x", i), shortest)
			if err != nil && !storage.Is(err, storage.Conflict) {
				t.Error(err)
			}
			won <- err == nil
		}()
	}

	sum := 0
	for range holders {
		if <-won {
			sum++
		}
	}

	if sum != 1 {
		t.Errorf("%d ids got the lease, want 1", sum)
	}
}

func leaseReleased(t *testing.T, l storage.Leases) {
	ctx := t.Context()
	requireNoError(t, l.Acquire(ctx, "1.0", ours, shortest))
	requireNoError(t, l.Release(ctx, "1.0", ours))
	wantKind(t, "renew a released lease", l.Renew(ctx, "1.0", ours), storage.Conflict)
	wantKind(t, "release twice", l.Release(ctx, "1.0", ours), storage.Conflict)
	requireNoError(t, l.Acquire(ctx, "1.0", theirs, shortest))
	wantKind(t, "acquire another id's lease", l.Acquire(ctx, "1.0", ours, shortest),
		storage.Conflict)
	requireNoError(t, l.Release(ctx, "1.0", theirs))
	requireNoError(t, l.Acquire(ctx, "1.0", ours, shortest))
}

func leaseAgain(t *testing.T, l storage.Leases) {
	ctx := t.Context()
	for _, length := range []time.Duration{shortest, time.Minute, shortest} {
		requireNoError(t, l.Acquire(ctx, "1.0", ours, length))
	}

	wantKind(t, "acquire by another", l.Acquire(ctx, "1.0", theirs, shortest), storage.Conflict)
	requireNoError(t, l.Release(ctx, "1.0", ours))

	// one release ends the lease after several acquires
	requireNoError(t, l.Acquire(ctx, "1.0", theirs, shortest))
}

func leaseLength(t *testing.T, l storage.Leases) {
	for _, length := range []time.Duration{0, 14 * time.Second, 61 * time.Second} {
		wantKind(t, length.String(), l.Acquire(t.Context(), "1.0", ours, length), storage.Other)
	}
	requireNoError(t, l.Acquire(t.Context(), "1.0", theirs, time.Minute))
}

func leaseNeverTaken(t *testing.T, l storage.Leases) {
	wantKind(t, "renew", l.Renew(t.Context(), "1.0", ours), storage.Conflict)
	wantKind(t, "release", l.Release(t.Context(), "1.0", ours), storage.Conflict)
}

func leaseNames(t *testing.T, l storage.Leases) {
	ctx := t.Context()
	requireNoError(t, l.Acquire(ctx, "1.0", ours, shortest))
	requireNoError(t, l.Acquire(ctx, "1.1", theirs, shortest))
	requireNoError(t, l.Acquire(ctx, "a/b", ours, shortest)) // one id may have several leases
	requireNoError(t, l.Release(ctx, "a/b", ours))
	requireNoError(t, l.Renew(ctx, "1.0", ours))
	wantKind(t, "renew another id's lease", l.Renew(ctx, "1.1", ours), storage.Conflict)
}

func leaseContextEnded(t *testing.T, l storage.Leases) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantKind(t, "acquire", l.Acquire(ctx, "1.0", ours, shortest), storage.Unavailable)
	requireNoError(t, l.Acquire(t.Context(), "1.0", theirs, shortest))
	wantKind(t, "renew", l.Renew(ctx, "1.0", theirs), storage.Unavailable)
	wantKind(t, "release", l.Release(ctx, "1.0", theirs), storage.Unavailable)
	requireNoError(t, l.Renew(t.Context(), "1.0", theirs))
}
