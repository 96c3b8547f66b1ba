package job_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"weir/internal/job"
	"weir/internal/lease"
	"weir/internal/storage"
	"weir/internal/storage/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const leaseLength = 15 * time.Second

// deadHolder is the lease id of a process that has died.
const deadHolder = "00000000-0000-4000-8000-000000000000"

var quiet = slog.New(slog.DiscardHandler)

// simulate runs a test in virtual time. All Hosts of the test share the leases.
func simulate(t *testing.T, f func(t *testing.T, leases storage.Leases)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(t, memory.New(time.Now).Leases()) })
}

// newHost returns a Host that is closed at the end of the test.
func newHost(t *testing.T, leases storage.Leases) *job.Host {
	h := job.NewHost(job.Config{Kind: "test", Leases: leases, Lease: leaseLength, Now: time.Now,
		Log: quiet})
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Errorf("Close: got %v, want no error", err)
		}
	})

	return h
}

// runs records the times of the runs of a job, counted from the beginning of the test.
type runs struct {
	began time.Time
	at    []time.Duration
}

func newRuns() *runs { return &runs{began: time.Now()} }

func (r *runs) record() { r.at = append(r.at, time.Since(r.began)) }

func (r *runs) check(t *testing.T, want ...time.Duration) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(r.at, want) {
		t.Errorf("got runs at %v, want %v", r.at, want)
	}
}

// blockedJob returns a job that runs until its context ends.
func blockedJob(r *runs) job.Job {
	return job.Job{ID: "1", Run: func(ctx context.Context, _ int) (bool, error) {
		r.record()
		<-ctx.Done()
		return false, context.Cause(ctx)
	}}
}

func TestHost_RunsAJobOnceAtATime(t *testing.T) {
	simulate(t, func(t *testing.T, leases storage.Leases) {
		h, first := newHost(t, leases), newRuns()
		h.Start(blockedJob(first))
		h.Start(blockedJob(first))
		synctest.Wait()
		first.check(t, 0)
		h.Stop("1")
		h.Start(blockedJob(first))
		synctest.Wait()
		first.check(t, 0, 0)
	})
}

var errFailed = errors.New("failed")

// A run that fails is repeated with growing pauses. The last failure leaves the job to the next
// Resume.
func TestHost_RetriesAFailedRun(t *testing.T) {
	simulate(t, func(t *testing.T, leases storage.Leases) {
		h, made := newHost(t, leases), newRuns()
		var failures []int
		failing := job.Job{ID: "1", Run: func(_ context.Context, n int) (bool, error) {
			made.record()
			failures = append(failures, n)
			if len(made.at) == 2 {
				panic("oops")
			}
			return len(made.at) == 3, errFailed
		}}

		h.Start(failing)
		time.Sleep(time.Minute)

		// The third run makes progress, so the pauses begin anew.
		seconds := []time.Duration{0, 1, 3, 4, 6, 10, 18}
		for i := range seconds {
			seconds[i] *= time.Second
		}

		made.check(t, seconds...)
		if want := []int{0, 1, 2, 1, 2, 3, 4}; !slices.Equal(failures, want) {
			t.Errorf("got the numbers of failures %v, want %v", failures, want)
		}

		h.Resume([]job.Job{failing})
		synctest.Wait()
		if len(made.at) != 8 {
			t.Errorf("after Resume: got %d runs, want 8", len(made.at))
		}
	})
}

// Two processes have found a job. When the first one dies, the second one runs the job.
func TestHost_WaitsForTheLeaseOfADeadProcess(t *testing.T) {
	simulate(t, func(t *testing.T, leases storage.Leases) {
		if err := leases.Acquire(t.Context(), "test-1", deadHolder, leaseLength); err != nil {
			t.Fatal(err)
		}

		h, made := newHost(t, leases), newRuns()
		h.Start(blockedJob(made))
		time.Sleep(time.Minute)
		made.check(t, 16*time.Second)
	})
}

// A process that knows of a job tries its lease once in each sweep: the lease belongs to a process
// that lives.
func TestHost_TriesABusyLeaseOnceInLaterSweeps(t *testing.T) {
	simulate(t, func(t *testing.T, leases storage.Leases) {
		holder, other := newHost(t, leases), newHost(t, leases)
		held, made := newRuns(), newRuns()
		holder.Start(blockedJob(held))
		synctest.Wait()
		other.Resume([]job.Job{blockedJob(made)})
		time.Sleep(time.Minute)
		other.Resume([]job.Job{blockedJob(made)})
		synctest.Wait()
		holder.Stop("1")
		time.Sleep(30 * time.Second)
		made.check(t)

		other.Resume(nil) // the job is over, so other forgets it
		if err := leases.Acquire(t.Context(), "test-1", deadHolder, leaseLength); err != nil {
			t.Fatal(err)
		}

		other.Resume([]job.Job{blockedJob(made)})
		time.Sleep(30 * time.Second)
		synctest.Wait()

		if len(made.at) != 1 {
			t.Errorf("a job that was forgotten: got %d runs, want 1 after the wait for the lease",
				len(made.at))
		}
	})
}

// Between two tries a job has neither its place nor its lease.
func TestHost_FreesPlaceAndLeaseAfterAFailure(t *testing.T) {
	simulate(t, func(t *testing.T, leases storage.Leases) {
		h, places := newHost(t, leases), 0
		h.Start(job.Job{ID: "1",
			Enter: func(context.Context) (func(), error) {
				places++
				return func() { places-- }, nil
			},
			Run: func(context.Context, int) (bool, error) { panic("oops") }})

		synctest.Wait()
		err := lease.Do(t.Context(), lease.Config{Leases: leases, Length: leaseLength}, "test-1",
			func(context.Context) error { return nil })
		if places != 0 || err != nil {
			t.Errorf("got %d places and the error %v for the lease, want none", places, err)
		}
	})
}

func TestHost_LeavesAJobAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, leases storage.Leases) {
		h, made := newHost(t, leases), newRuns()
		h.Start(job.Job{ID: "1", Run: func(context.Context, int) (bool, error) {
			made.record()
			if len(made.at) < 3 {
				return true, job.ErrAgain
			}
			return false, job.Leave(errFailed)
		}})

		time.Sleep(time.Minute)
		made.check(t, 0, 0, 0)
	})
}

func TestHost_CloseReturnsAtItsDeadline(t *testing.T) {
	simulate(t, func(t *testing.T, leases storage.Leases) {
		h, release := newHost(t, leases), make(chan struct{})
		h.Start(job.Job{ID: "1", Run: func(context.Context, int) (bool, error) {
			<-release
			return false, nil
		}})

		synctest.Wait()
		limited, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		defer cancel()
		if err := h.Close(limited); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the deadline", err)
		}

		made := newRuns()
		h.Start(blockedJob(made))
		synctest.Wait()
		made.check(t)
		close(release)
	})
}
