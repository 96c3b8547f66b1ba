package diagnosis

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/internal/lane"
	"weir/internal/lane/epochs"
	"weir/internal/lane/lists"
	"weir/internal/storage"
	"weir/internal/weir"
)

// maxContractsChecked is the number of messages of each kind (in the log, held, scheduled, dead)
// that weir check reads in each lane.
const maxContractsChecked = 1000

// checkMessages looks for stored messages whose contracts the settings lack. So an operator
// learns before a deployment that its settings would make messages wait.
func (s *System) checkMessages(ctx context.Context) Finding {
	f := Finding{Name: "messages", Todo: todoStorage}
	if s.Contracts == nil {
		f.Detail = "not checked, because the contracts are wrong"
		return f
	}

	store := &lane.Store{Table: s.Account.Table(), Bodies: s.Account.Bodies(), Now: time.Now,
		Contracts: s.contractNames()}
	record, err := epochs.Read(ctx, store.Table)
	if storage.Is(err, storage.NotFound) {
		f.Detail = notThereYet
		return f
	}

	if err != nil {
		return addStorageError(f, err)
	}

	store.UseEpochRecord(record)
	found := make([]storedContracts, store.Lanes)
	err = lane.ForEach(store.Lanes, func(number int) (err error) {
		found[number], err = readStoredContracts(ctx, store, number)
		return err
	})
	if err != nil {
		return addStorageError(f, err)
	}

	all := storedContracts{waiting: map[string]int{}, dead: map[string]int{}}
	for _, l := range found {
		all.add(l)
	}

	return all.describe(f, store.Contracts)
}

// storedContracts has the number of messages of each contract, by the contract's present name.
type storedContracts struct {
	waiting, dead map[string]int
	isCut         bool // a lane has more messages than were read
}

func (s *storedContracts) add(other storedContracts) {
	for name, n := range other.waiting {
		s.waiting[name] += n
	}

	for name, n := range other.dead {
		s.dead[name] += n
	}

	s.isCut = s.isCut || other.isCut
}

// readStoredContracts reads the contracts of a lane's waiting and dead messages.
func readStoredContracts(ctx context.Context, store *lane.Store, number int) (s storedContracts,
	err error) {
	s.waiting, s.dead = map[string]int{}, map[string]int{}
	reader := lists.Reader{Store: store}
	c, err := store.ReadControl(ctx, number)
	if storage.Is(err, storage.NotFound) {
		return s, nil // the lane's control rows are made at the next start
	}
	if err != nil {
		return s, err
	}

	inLog, err := store.ScanLog(ctx, number, c.Tail.Cursor, maxContractsChecked)
	if err != nil {
		return s, err
	}

	waiting, err := reader.ReadWaiting(ctx, number, 1)
	if err != nil {
		return s, err
	}

	var seqs []int64
	for _, h := range waiting.Held {
		seqs = append(seqs, h.Seq)
	}

	for _, due := range waiting.DueTimes {
		seqs = append(seqs, due.Seq)
	}

	// ReadMany wants the highest first
	slices.SortFunc(seqs, func(a, b int64) int { return cmp.Compare(b, a) })
	s.isCut = len(inLog) == maxContractsChecked || !waiting.IsComplete ||
		len(seqs) > maxContractsChecked
	others, _, err := store.ReadMany(ctx, number,
		slices.Compact(seqs[:min(len(seqs), maxContractsChecked)]))
	if err != nil {
		return s, err
	}

	for _, e := range inLog {
		if e.Stage == weir.Queued && !e.IsHeld {
			s.waiting[e.Message.Contract]++
		}
	}

	for _, e := range others {
		if !e.Stage.Final() {
			s.waiting[e.Message.Contract]++
		}
	}

	dead, more, err := reader.ReadDead(ctx, number, 0, maxContractsChecked)
	for _, m := range dead {
		s.dead[m.Contract]++
	}

	s.isCut = s.isCut || more

	return s, err
}

// describe returns the finding about the contracts that the settings lack. Waiting messages of such
// a contract are an error, because the CMS does not get them. Dead ones are a warning.
func (s *storedContracts) describe(f Finding, contracts *lane.Contracts) Finding {
	waiting, dead := listMissing(s.waiting, contracts), listMissing(s.dead, contracts)
	f.Detail = "the settings have the contract of each message"
	if s.isCut {
		f.Detail = fmt.Sprintf(
			"the settings have the contract of each message that was read (%d of each kind in a lane)",
			maxContractsChecked)
	}

	if len(waiting) > 0 {
		f.Wrong = fmt.Errorf("messages wait for contracts that the settings lack: %s",
			strings.Join(waiting, ", "))
		f.Todo = "put the contract back, list its name under formerly in the contract that replaces it, " +
			"or cancel the messages (weir cancel --contract NAME)"
	}

	if len(dead) > 0 {
		f.Warnings = append(f.Warnings,
			fmt.Sprintf("dead messages have contracts that the settings lack: %s; "+
				"after a replay they would wait", strings.Join(dead, ", ")))
	}

	return f
}

// listMissing returns the contracts that the settings lack, sorted, with their numbers of messages.
func listMissing(counts map[string]int, contracts *lane.Contracts) (texts []string) {
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if !contracts.Has(name) {
			texts = append(texts, fmt.Sprintf("%s (messages: %d)", name, counts[name]))
		}
	}
	return texts
}
