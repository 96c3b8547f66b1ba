package simulation_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/contract"
	"weir/internal/drain"
	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/memory"
)

// TestGrowth has a simulated world of its own, because its time is counted in weeks. Each day one
// process works for some minutes: it takes posts, batches and files, delivers messages, replays
// dead ones in bulk, runs schedules, and runs all jobs of upkeep. Then it ends, or is killed. After
// each day, every row and every blob of the account must be younger than its retention allows, and
// an upstream's quota must have counted what was stored.

// depot is a storage account over some weeks. Storage lists slowly and in short pages, so that one
// call of a job does not reach the end of a long listing.
type depot struct {
	dice      *dice
	account   *memory.Account
	contracts *contract.Set
	faults    float64
	pageSize  int           // number of names in a page of a listing
	listTakes time.Duration // time of a page of a listing
	files     int           // largest number of files a day
	sender    drain.Sender  // nil = taker

	began     time.Time
	firstSeen map[string]time.Time // by kind and name: day on which a row or blob was seen first

	mu       sync.Mutex
	problems []string
	posts    int // of all days
	kept     map[string]int
}

const (
	depotDays = 42
	// Retention in a depot. Batches have a retention of 30 days, and the history one of 8 days, in
	// all worlds.
	keepArchived = 6 * 24 * time.Hour
	keepAudited  = 5 * 24 * time.Hour
	keepMessages = 4 * 24 * time.Hour
	// growthSlack is the time by which a row or a blob may outlive its retention: a job that is
	// done runs again after a day, a process works for some minutes a day only, and may be killed
	// in them.
	growthSlack = 4 * 24 * time.Hour
)

func (w *depot) addProblem(kind, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, kind+": "+fmt.Sprintf(format, args...))
}

// TestGrowth runs seeds of depots. The environment variable GROWTH is the number of seeds, by
// default 12. GROWTH_FROM is the first seed, by default 1. If STOP is set, the first failure ends
// the run.
func TestGrowth(t *testing.T) {
	seeds, from, step := readSeeds(t, "GROWTH", 12), readNumber(t, "GROWTH_FROM", 1),
		readNumber(t, "STEP", 1)
	kept, posts := map[string]int{}, 0
	for i := range seeds {
		seed := from + i*step
		w := runDepot(t, seed)
		posts += w.posts
		for kind, n := range w.kept {
			kept[kind] = max(kept[kind], n)
		}

		if len(w.problems) > 0 {
			t.Errorf("seed %d: %.2000s", seed, strings.Join(w.problems, "\n"))
			if os.Getenv("STOP") != "" {
				break
			}
		}
	}

	t.Logf("%d seeds, %d posts; most rows and blobs of each kind after a day: %v", seeds,
		posts, kept)

	for _, kind := range growthKinds {
		if kept[kind.name] == 0 && kind.keep > 0 && kind.name != "inbox" && !t.Failed() {
			t.Errorf("got no %s in all seeds, want some", kind.name)
		}
	}
}

func runDepot(t *testing.T, seed uint64) *depot {
	t.Helper()
	d := newDice(seed)
	defer watchForSpin(seed, d, spinLimit)()
	set, err := contract.New([]contract.Definition{{Name: "article", Root: "article", Key: contract.KeyPaths{"./@path"},
		Split: "/feed/article"}}, contract.Limits{MaxBody: depotBody})
	if err != nil {
		t.Fatal(err)
	}

	var w *depot
	synctest.Test(t, func(t *testing.T) {
		w = &depot{dice: d, account: memory.New(time.Now), contracts: set, began: time.Now(),
			firstSeen: map[string]time.Time{}, kept: map[string]int{},
			faults:    []float64{0, 0.01, 0.05}[d.drawBelow("faults", 3)],
			pageSize:  2 + d.drawBelow("page size", 8),
			listTakes: d.drawBetween("list takes", 10*time.Millisecond, 4*time.Second),
			files:     2 + d.drawBelow("files", 8)}

		store := &lane.Store{Table: w.account.Table(), Bodies: w.account.Blobs(), Lanes: depotLanes,
			Now: time.Now}
		if err := store.Open(t.Context()); err != nil {
			t.Fatal(err)
		}

		for day := range depotDays {
			w.liveDay(day)
			w.checkGrowth()
			if len(w.problems) > 0 {
				break
			}
		}

		time.Sleep(10 * time.Minute) // within this time, callers that still wait give up
	})

	return w
}

// growthKind is a kind of rows or blobs.
type growthKind struct {
	name string
	keep time.Duration // time for which storage has one; 0 = for ever
	most int           // largest number of them, if storage has them for ever; 0 = no bound
	is   func(place, name string) bool
}

// growthKinds has every kind of rows and blobs. The first kind that fits counts.
var growthKinds = []growthKind{
	{"history", 8 * 24 * time.Hour, 0, inPlace("history")},
	{"audit", keepAudited, 0, inPlace("audit")},
	{"batches", 30 * 24 * time.Hour, 0, inPlace("batches")},
	{"quotas", 0, 1, named("upstreams", "quota_")},
	{"meta", 0, 20, inPlace("meta")},
	{"finished replays", 30 * 24 * time.Hour, 0, inPlace("replays")},
	{"standing schedules", 0, 1, named("schedules", standingPlan)},
	{"schedules that are deleted", 24 * time.Hour, 0, inPlace("schedules")},
	{"replays under way", 0, 4, named("1.0", "!replay_")},
	{"control rows", 0, 10 * depotLanes, named("1.", "!")},
	{"latest versions, remembered ids", 0, 0, func(place, name string) bool {
		return strings.HasPrefix(place, "1.") &&
			(strings.HasPrefix(name, "k_") || strings.HasPrefix(name, "c_"))
	}},
	{"last deliveries of keys with dead messages", 0, 1, named("1.", "l_")},
	{"messages", keepMessages, 0, inPlace("1.")},
	{"documents without a batch", 24 * time.Hour, 0, named("bodies", "batches/lost-")},
	{"batches' documents", 30 * 24 * time.Hour, 0, named("bodies", "batches/")},
	{"messages of schedules", 2 * 24 * time.Hour, 0, named("bodies", "schedules/")},
	{"bodies", keepMessages, 0, inPlace("bodies")},
	{"leases of batches", 24 * time.Hour, 0, named("leases", "batch-")},
	{"leases of replays", 24 * time.Hour, 0, named("leases", "replay-")},
	{"leases", 0, 2*depotLanes + 2, inPlace("leases")},
	{"inbox", 24 * time.Hour, 0, inPlace("inbox")},
	{"accepted", keepArchived, 0, inPlace("accepted")},
	{"rejected", keepArchived, 0, inPlace("rejected")},
}

func inPlace(beginning string) func(place, name string) bool { return named(beginning, "") }

func named(place, beginning string) func(place, name string) bool {
	return func(p, name string) bool {
		return strings.HasPrefix(p, place) &&
			strings.HasPrefix(name, beginning)
	}
}

// checkGrowth looks at each row and each blob of the account.
func (w *depot) checkGrowth() {
	counts, now := map[string]int{}, time.Now()
	present := map[string]bool{}
	w.listAll(func(place, name string) {
		full := place + " " + name
		present[full] = true
		if w.firstSeen[full].IsZero() {
			w.firstSeen[full] = now
		}

		i := slices.IndexFunc(growthKinds, func(k growthKind) bool { return k.is(place, name) })
		if i < 0 {
			w.addProblem("growth", "%s is of no known kind", full)
			return
		}

		kind := growthKinds[i]
		counts[kind.name]++
		if age := now.Sub(w.firstSeen[full]); kind.keep > 0 && age > kind.keep+growthSlack {
			w.addProblem("growth", "%s is %s old, and is to be kept for %s", full, age, kind.keep)
		}
	})

	maps.DeleteFunc(w.firstSeen, func(full string, _ time.Time) bool { return !present[full] })

	for _, kind := range growthKinds {
		w.kept[kind.name] = max(w.kept[kind.name], counts[kind.name])
		if kind.most > 0 && counts[kind.name] > kind.most {
			w.addProblem("growth", "there are %d %s, at most %d are expected", counts[kind.name],
				kind.name, kind.most)
		}
	}
}

// listAll calls a function for each row and each blob of the account.
func (w *depot) listAll(visit func(place, name string)) {
	ctx := context.Background()
	for _, partition := range w.account.Table().Partitions() {
		for q, more := (storage.Query{Partition: partition, Columns: []string{}}), true; more; {
			page, err := w.account.Table().Range(ctx, q)
			if err != nil {
				w.addProblem("setup", "%v", err)
				return
			}

			for _, row := range page.Rows {
				visit(partition, row.Key)
				q.After = row.Key
			}

			more = page.More
		}
	}

	blobs := func(place string, list func(marker string) (names []string, next string, err error)) {
		for marker, more := "", true; more; more = marker != "" {
			names, next, err := list(marker)
			if err != nil {
				w.addProblem("setup", "%v", err)
				return
			}

			for _, name := range names {
				visit(place, name)
			}

			marker = next
		}
	}

	ofBlobs := func(list func(ctx context.Context, prefix, marker string) (storage.BlobPage, error)) func(string) (
		[]string, string, error) {
		return func(marker string) (names []string, next string, err error) {
			page, err := list(ctx, "", marker)
			for _, b := range page.Infos {
				names = append(names, b.Name)
			}
			return names, page.Next, err
		}
	}

	blobs("bodies", ofBlobs(w.account.Blobs().List))
	blobs("leases", ofBlobs(w.account.Leases().List))

	for _, container := range []string{"inbox", "accepted", "rejected"} {
		files := w.account.Files(container)
		blobs(container, func(marker string) (names []string, next string, err error) {
			page, err := files.List(ctx, "", marker)
			for _, f := range page.Files {
				names = append(names, f.Name)
			}
			return names, page.Next, err
		})
	}
}
