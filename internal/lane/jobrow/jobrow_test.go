package jobrow_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/lane/epochend"
	"weir/internal/lane/jobrow"
	"weir/internal/storage"
	"weir/internal/storage/storagetest"
	"weir/internal/testkit/lanetest"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func isTransaction(c storagetest.Call) bool { return c.Op == "Transact" }

func TestCreate(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		l := lanetest.New(t, 2)
		created, err := jobrow.Create(t.Context(), l.Store,
			jobrow.Row{ID: "a", Text: "shown", Checkpoint: "begin"})
		if err != nil || created.ETag == "" {
			t.Fatalf("got %+v, %v, want a row with an ETag", created, err)
		}

		read, err := jobrow.Read(t.Context(), l.Store, "a")
		if err != nil || read != created || read.Text != "shown" || read.Checkpoint != "begin" {
			t.Errorf("got %+v, %v, want %+v", read, err, created)
		}

		if got := jobrow.InProgress(l.Control(0)); len(got) != 1 || got[0] != created {
			t.Errorf("got the jobs %+v of lane 0, want %+v", got, created)
		}

		if got := jobrow.InProgress(l.Control(1)); len(got) != 0 {
			t.Errorf("got the jobs %+v of lane 1, want none", got)
		}

		if _, err := jobrow.Read(t.Context(), l.Store, "b"); !storage.Is(err, storage.NotFound) {
			t.Errorf("got %v for a job that does not exist, want NotFound", err)
		}
	})
}

// Storage inserts the row, but the answer is lost. Create must then return the job without an
// error, and must not create a second job.
func TestCreate_LostAnswer(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		l, faults := lanetest.New(t, 1), storagetest.NewFaults()
		faults.Once(isTransaction, storagetest.Fault{Kind: storagetest.FailAfter})
		created, err := jobrow.Create(t.Context(), l.FaultyStore(faults),
			jobrow.Row{ID: "a", Text: "shown"})
		jobs, readErr := jobrow.ReadAll(t.Context(), l.Store)
		if err != nil || readErr != nil || len(jobs) != 1 || jobs[0] != created {
			t.Errorf("got %+v, %v, and the jobs %+v, %v, want one job, which Create returns",
				created, err, jobs, readErr)
		}
	})
}

func TestCreate_StorageIsAway(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		l, faults := lanetest.New(t, 1), storagetest.NewFaults()
		faults.Set(func(c storagetest.Call) storagetest.Fault {
			if isTransaction(c) {
				return storagetest.Fault{Kind: storagetest.FailBefore}
			}
			return storagetest.Fault{}
		})

		began := time.Now()
		_, err := jobrow.Create(t.Context(), l.FaultyStore(faults), jobrow.Row{ID: "a"})
		var failure *weir.Error
		if !errors.As(err, &failure) || failure.Kind != weir.Unavailable ||
			failure.RetryAfter != 10*time.Second {
			t.Errorf("got %+v, want Unavailable with a Retry-After of 10s", err)
		}

		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("got the error after %s, want it within 6s", took)
		}
	})
}

// While the number of lanes is being changed, lane 0 is sealed. Create must then refuse a job,
// because a job cannot continue in the new lanes.
func TestCreate_SealedLane(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		l := lanetest.New(t, 1)
		if err := (epochend.Lanes{Store: l.Store}).Seal(t.Context(), 0); err != nil {
			t.Fatal(err)
		}

		if _, err := jobrow.Create(t.Context(), l.Store, jobrow.Row{ID: "a"}); weir.KindOf(err) !=
			weir.Unavailable {
			t.Errorf("got %v, want Unavailable", err)
		}

		if jobs, err := jobrow.ReadAll(t.Context(), l.Store); err != nil || len(jobs) != 0 {
			t.Errorf("got the jobs %+v, %v, want none", jobs, err)
		}
	})
}

func TestCreate_TooMany(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		l := lanetest.New(t, 1)
		for n := range jobrow.MaxInProgress {
			if _, err := jobrow.Create(t.Context(), l.Store, jobrow.Row{ID: fmt.Sprint("job", n)}); err != nil {
				t.Fatalf("Create of job %d = %v, want no error", n, err)
			}
		}

		if _, err := jobrow.Create(t.Context(), l.Store, jobrow.Row{ID: "more"}); weir.KindOf(err) != weir.Conflict {
			t.Errorf("got %v for job %d, want Conflict", err, jobrow.MaxInProgress+1)
		}

		for range 2 { // the second removal finds no row
			if err := jobrow.Remove(t.Context(), l.Store, "job3"); err != nil {
				t.Errorf("Remove = %v, want no error", err)
			}
		}

		if _, err := jobrow.Create(t.Context(), l.Store, jobrow.Row{ID: "more"}); err != nil {
			t.Errorf("Create after the end of a job = %v, want no error", err)
		}
	})
}

// A process stalls, and meanwhile another process resumes its job. The first process must not
// overwrite the other process's progress.
func TestSave(t *testing.T) {
	lanetest.Simulate(t, func(t *testing.T) {
		l := lanetest.New(t, 1)
		job, err := jobrow.Create(t.Context(), l.Store, jobrow.Row{ID: "a", Checkpoint: "begin"})
		if err != nil {
			t.Fatal(err)
		}

		former := job
		job.Checkpoint = "half"
		if job.ETag, err = jobrow.Save(t.Context(), l.Store, job); err != nil {
			t.Fatal(err)
		}

		former.Checkpoint = "less"
		if _, err := jobrow.Save(t.Context(), l.Store, former); !storage.Is(err,
			storage.Precondition) {
			t.Errorf("got %v for an old ETag, want Precondition", err)
		}

		if got, err := jobrow.Read(t.Context(), l.Store, "a"); err != nil || got != job {
			t.Errorf("got %+v, %v, want %+v", got, err, job)
		}

		if err := jobrow.Remove(t.Context(), l.Store, "a"); err != nil {
			t.Fatal(err)
		}

		if _, err := jobrow.Save(t.Context(), l.Store, job); !storage.Is(err, storage.NotFound) {
			t.Errorf("got %v for a job that has ended, want NotFound", err)
		}
	})
}
