package drain

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/weir"
)

// fakeDue is a dueQueue whose answers the test sets.
type fakeDue struct {
	shut     map[string]bool // by key hash
	awaiting map[int64]bool  // by sequence number
	waits    []string        // hashes of the keys for which waitForMove was called
}

func (f *fakeDue) isShut(keyHash string) bool    { return f.shut[keyHash] }
func (f *fakeDue) awaitsMove(e *lane.Entry) bool { return f.awaiting[e.Seq()] }

func (f *fakeDue) recordChoice(bool) {}

func (f *fakeDue) waitForMove(keyHash string) {
	f.waits = append(f.waits, keyHash)
	f.shut[keyHash] = true
}

// newTestJournal returns a journal that commits no change.
func newTestJournal() *journal {
	c := &committer{
		now:         func() time.Time { return noon },
		pendingKeys: map[string]int{},
		wake:        make(chan struct{}, 1),
	}
	return &journal{committer: c, saveProgress: func(*lane.Change) {}}
}

func newLogEntry(seq int64, key string) *lane.Entry {
	return (&lane.Store{}).NewEntry(weir.Message{ID: weir.ID{Epoch: 1, Seq: seq}, Key: key,
		AcceptedAt: noon})
}

// newTestSelector returns a selector whose read-ahead has a message for each of these keys. The
// sequence numbers begin with 1.
func newTestSelector(logKeys ...string) (*selector, *fakeDue) {
	now := func() time.Time { return noon }
	due := &fakeDue{shut: map[string]bool{}, awaiting: map[int64]bool{}}
	scope := laneScope{now: now, log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		observer: noObserver{}}
	ahead := &readAhead{nextRead: int64(len(logKeys) + 1)}
	for i, key := range logKeys {
		ahead.entries = append(ahead.entries, newLogEntry(int64(i+1), key))
	}

	return &selector{laneScope: scope, journal: newTestJournal(), readAhead: ahead,
		keys:    newKeyStates(now, Backoff{}),
		pauses:  &operatorPauses{keyUntil: map[string]time.Time{}},
		breaker: newTestBreaker(), due: due,
		versions: &latestVersions{byKey: map[string]lane.LatestVersion{}},
		missing: &missingContracts{laneScope: laneScope{store: &lane.Store{}, now: now},
			patience: time.Hour}}, due
}

// addBlock adds a block with the held message e, which waits until the time "at".
func (s *selector) addBlock(e *lane.Entry, at time.Time) *keyState {
	k := &keyState{KeyBlock: lane.KeyBlock{ID: e.BlockID(), KeyHash: e.KeyHash(), NextAt: at,
		HeldCount: 1}, first: e}
	s.keys.byID[k.ID] = k
	return k
}

func TestSelector_PickNext(t *testing.T) {
	t.Parallel()
	hash := (&lane.Store{}).KeyHash
	now, later := noon, noon.Add(time.Hour)
	for name, c := range map[string]struct {
		log     []string
		prepare func(*selector, *fakeDue)
		want    int64 // 0 = none
		parked  []int64
	}{
		"TheFirstOfTheLog": {[]string{"a", "b"}, func(*selector, *fakeDue) {}, 1, nil},
		"NoneOfAnEmptyLog": {nil, func(*selector, *fakeDue) {}, 0, nil},
		"NoneThatAwaitsAMove": {[]string{"a", "b"},
			func(_ *selector, d *fakeDue) { d.awaiting[1] = true }, 2, nil},
		"NoneOfAKeyThatIsShut": {[]string{"a", "b"}, func(_ *selector, d *fakeDue) {
			d.shut[hash("a")] = true
		}, 2, nil},
		"NoneOfAKeyThatIsPending": {[]string{"a", "a", "b"}, func(s *selector, _ *fakeDue) {
			s.journal.pendingKeys[hash("a")] = 1
		}, 3, nil},
		"NoneOfAKeyThatHadItsTurn": {[]string{"a", "b"}, func(s *selector, _ *fakeDue) {
			s.breaker.probedKeys[hash("a")] = true
		}, 2, nil},
		"ABlockedKeyIsParked": {[]string{"a", "b", "a"}, func(s *selector, _ *fakeDue) {
			s.addBlock(newLogEntry(0, "a"), later)
		}, 2, []int64{1}},
		"APausedKeyIsParked": {[]string{"a", "b"}, func(s *selector, _ *fakeDue) {
			s.pauses.keyUntil[hash("a")] = later
		}, 2, []int64{1}},
		"NoneParkedIfCommitsLag": {[]string{"a", "b"}, func(s *selector, _ *fakeDue) {
			s.addBlock(newLogEntry(0, "a"), later)
			s.journal.uncommitted = maxParked
		}, 2, nil},
		"AHeldOneGoesInItsTurn": {[]string{"b"},
			func(s *selector, _ *fakeDue) { s.addBlock(newLogEntry(7, "a"), now) }, 7, nil},
		"TheLogGoesInItsTurn": {[]string{"b"}, func(s *selector, _ *fakeDue) {
			s.addBlock(newLogEntry(7, "a"), now)
			s.isLogNext = true
		}, 1, nil},
		"AHeldOneWaitsForItsTime": {nil,
			func(s *selector, _ *fakeDue) { s.addBlock(newLogEntry(7, "a"), now.Add(1)) }, 0, nil},
		"AHeldOneWaitsForTheLog": {nil, func(s *selector, _ *fakeDue) {
			s.addBlock(newLogEntry(7, "a"), now).waitLogPos = 9
		}, 0, nil},
		"FromTheEndWhileAttemptsFail": {[]string{"a", "b", "c"}, func(s *selector, _ *fakeDue) {
			s.breaker.alternateFor, s.isFromEnd = 1, true
		}, 3, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, due := newTestSelector(c.log...)
			c.prepare(s, due)
			before := seqsOf(s.readAhead.entries)
			got, err := s.pickNext(t.Context())
			if err != nil {
				t.Fatalf("got error %v, want none", err)
			}

			seq := int64(0)
			if got != nil {
				seq = got.entry.Seq()
			}

			if seq != c.want {
				t.Errorf("got message %d, want %d", seq, c.want)
			}

			left := seqsOf(s.readAhead.entries)
			parked := slices.DeleteFunc(before,
				func(seq int64) bool { return slices.Contains(left, seq) })
			if fmt.Sprint(parked) != fmt.Sprint(c.parked) {
				t.Errorf("parked %v, want %v", parked, c.parked)
			}
		})
	}
}

func seqsOf(entries []*lane.Entry) []int64 {
	var seqs []int64
	for _, e := range entries {
		seqs = append(seqs, e.Seq())
	}
	return seqs
}

// The selector takes held messages and log messages in turn, even if there are several of both.
func TestSelector_TakesTurns(t *testing.T) {
	t.Parallel()
	s, _ := newTestSelector("b", "c")
	s.addBlock(newLogEntry(7, "a"), noon)
	s.addBlock(newLogEntry(8, "d"), noon)
	var got []int64
	for range 4 {
		c, err := s.pickNext(t.Context())
		if err != nil || c == nil {
			t.Fatalf("got %v and error %v, want a message", c, err)
		}

		got = append(got, c.entry.Seq())

		if c.block == nil {
			s.readAhead.removeEntry(c.entry)
		} else {
			delete(s.keys.byID, c.block.ID)
		}
	}

	isHeld := func(seq int64) bool { return seq >= 7 }
	for i, seq := range got {
		if isHeld(seq) != (i%2 == 0) {
			t.Fatalf("got %v, want held messages (7, 8) and those of the log (1, 2) in turns", got)
		}
	}
}

// A due message without a position may belong before a held message of its key. So the held message
// is not sent before the position is known.
func TestSelector_HeldMessageWaitsForAMove(t *testing.T) {
	t.Parallel()
	s, due := newTestSelector()
	e := newLogEntry(7, "a")
	s.addBlock(e, noon)
	due.awaiting[7] = true
	c, err := s.pickNext(t.Context())
	if err != nil || c != nil {
		t.Errorf("got candidate %v and error %v, want neither", c, err)
	}

	if want := []string{e.KeyHash()}; !slices.Equal(due.waits, want) {
		t.Errorf("keys that wait: got %v, want %v", due.waits, want)
	}
}

// The lane pauses, because the CMS refused a message of each key. A log message of a blocked key is
// parked, and becomes the first message of the key's block. If the log message was in the log
// before the pause, it waits for the end of the pause. If the log message was appended later, it
// can be sent during the pause.
func TestSelector_ParkedMessageThatHadItsTurnWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		probedBelow int64
		want        bool // the block's first message can be sent during the pause
	}{"HadItsTurn": {2, false}, "FiledLater": {1, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := newTestSelector("a")
			s.breaker.probedBelow, s.breaker.nextRoundAt = c.probedBelow, noon.Add(time.Minute)
			k := s.addBlock(newLogEntry(2, "a"), noon)
			k.IsUntried, k.isMixed = true, true
			if _, err := s.pickFromLog(t.Context()); err != nil {
				t.Fatal(err)
			}

			if k.HeldCount != 2 || k.IsUntried != c.want {
				t.Errorf("got a block with %d messages, untried %v; want 2, untried %v",
					k.HeldCount, k.IsUntried, c.want)
			}
		})
	}
}
