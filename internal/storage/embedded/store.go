package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"weir/internal/panics"
	"weir/internal/storage"
	"weir/internal/storage/memory"
	"weir/internal/storage/timelimit"
)

// Names of the files in the folder.
const (
	dataName = "weir.db"
	lockName = "weir.lock"
)

// scrubInterval is the time between two scrubs; see Scrub.
const scrubInterval = time.Minute

// Options are the settings of a store. The zero value is useful.
type Options struct {
	// Program names the program in the line that a second opener gets; empty = weir.
	Program string
	// Now is the clock of leases and queues. If it is nil, the clock begins with the time of Open
	// and then advances steadily, also if the clock of the machine is set meanwhile.
	Now func() time.Time
	// NoSync leaves out the syncs: a power cut can then lose or damage the store. It is for
	// simulations, whose stores do not outlive the process.
	NoSync bool
	// OnBroken is called once if the store cannot be used any more; see the package comment. The
	// process must then end.
	OnBroken func(error)
}

// Store is an open store. Its ports may be used concurrently.
type Store struct {
	dir       string
	db        *bolt.DB
	lock      *folderLock
	now       func() time.Time
	committer *committer
	leases    *memory.Leases
	// reading is held shared by each read. Whoever holds it alone may change pages that no state
	// refers to any more, because no reader has an older snapshot then.
	reading sync.RWMutex
	// longReads is held shared by reads that take long, such as a back-up. A scrub waits for them
	// before it makes other reads wait.
	longReads sync.RWMutex
	noSync    bool
	life      context.Context // ends when Close begins
	end       context.CancelFunc
	scrubbing sync.WaitGroup
	closing   sync.Once
	closed    error
}

// Open opens the store in a folder. It makes the folder and the store if they are not there.
func Open(dir string, o Options) (*Store, error) {
	s, err := open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("open the folder %s: %w", dir, err)
	}

	return s, nil
}

func open(dir string, o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = steadyClock()
	}

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, explainOpen(err)
	}

	if err := refuseNetwork(dir); err != nil {
		return nil, err
	}

	lock, err := lockFolder(dir, o.Program, o.Now())
	if err != nil {
		return nil, explainOpen(err)
	}

	s := &Store{dir: dir, lock: lock, now: o.Now, noSync: o.NoSync,
		leases: memory.New(o.Now).Leases()}
	if err := s.openData(o); err != nil {
		lock.release()
		return nil, explainOpen(err)
	}

	return s, nil
}

// steadyClock returns a clock that does not jump with the clock of the machine.
func steadyClock() func() time.Time {
	start := time.Now()

	return func() time.Time { return start.Add(time.Since(start)) }
}

func (s *Store) openData(o Options) error {
	path := filepath.Join(s.dir, dataName)
	if err := removeCopies(s.dir); err != nil {
		return err
	}

	if err := createData(path); err != nil {
		return err
	}

	db, err := openFile(path, o.NoSync)
	if err != nil {
		return err
	}

	err = guardFaults(func() error {
		return db.Update(func(tx *bolt.Tx) error { return prepare(tx, o.Now()) })
	})
	if err != nil {
		return errors.Join(err, db.Close())
	}

	s.db = db
	s.committer = newCommitter(db, o.Now, o.OnBroken, trimmer(db))

	return s.startScrub(path)
}

// startScrub starts the scrub of each minute. A simulation has none.
func (s *Store) startScrub(path string) error {
	s.life, s.end = context.WithCancel(context.Background())
	if s.noSync {
		return nil
	}

	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		s.end()
		return err
	}

	c := &scrubber{store: s, file: file}
	s.scrubbing.Go(func() {
		defer file.Close()
		_ = panics.Catch(func() error {
			c.repeat(s.life)
			return nil
		})
	})

	return nil
}

// Dir returns the folder of the store.
func (s *Store) Dir() string { return s.dir }

// Table returns the table of the lanes.
func (s *Store) Table() storage.Table { return timelimit.Table(&table{s}) }

// Tickets returns the queue whose messages start drains.
func (s *Store) Tickets() timelimit.QueuePort {
	return timelimit.Queue(&queue{s, ticketsBucket})
}

// Poison returns the queue of the tickets that were given up.
func (s *Store) Poison() timelimit.QueuePort {
	return timelimit.Queue(&queue{s, poisonBucket})
}

// InboxEvents returns the queue of inbox events.
func (s *Store) InboxEvents() timelimit.QueuePort {
	return timelimit.Queue(&queue{s, eventsBucket})
}

// Bodies returns the container of large bodies and of batches.
func (s *Store) Bodies() timelimit.BlobPort {
	return timelimit.Blobs(&blobs{container{s, bodiesBucket}})
}

// Leases returns the leases of lanes and all other leases. They end with the process.
func (s *Store) Leases() storage.Leases { return s.leases }

// LeaseBlobs returns the leases as a listing, whose Delete refuses a held lease.
func (s *Store) LeaseBlobs() *memory.Leases { return s.leases }

// Inbox returns the container that other systems put files into.
func (s *Store) Inbox() storage.Files { return s.files(inboxBucket) }

// Accepted returns the container of the archive's accepted files.
func (s *Store) Accepted() storage.Files { return s.files(acceptedBucket) }

// Rejected returns the container of the archive's rejected files.
func (s *Store) Rejected() storage.Files { return s.files(rejectedBucket) }

func (s *Store) files(bucket string) storage.Files {
	return timelimit.Files(&files{container{s, bucket}})
}

// Ensure does nothing: Open has made everything.
func (s *Store) Ensure(context.Context) error { return nil }

// Skew returns 0: the store has the clock of the process.
func (s *Store) Skew(context.Context) (time.Duration, error) { return 0, nil }

// Close finishes the writes under way, and closes the store. Later calls fail.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.end()
		s.scrubbing.Wait()
		s.committer.stop()
		s.closed = errors.Join(closeFile(s.db), s.lock.release())
	})

	return s.closed
}
