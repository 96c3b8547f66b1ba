package embedded_test

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"weir/internal/storage/embedded"
)

// eventKind is the effect of a system call of the writers on the file.
type eventKind int

const (
	fileWritten eventKind = iota + 1
	fileSized
	fileSynced
	linePrinted
)

// event is a system call of the writers, in the order in which the calls began. A sync is there
// when it has ended, and covers the events before it began.
type event struct {
	kind   eventKind
	data   []byte // of a write, or the printed line
	offset int64  // of a write, or the new size
	covers int    // of a sync: the number of events before it began
}

// The power fails at any moment: what was not synced is written, lost, or torn, each sector by
// itself. Each message that was printed before is there, whole and in order.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()

	// The file exists before the record begins: createData makes it durable by a rename.
	makeStore(t, dir)
	image := readData(t, filepath.Join(dir, "weir.db"))
	events := recordWriters(t, dir)

	t.Run("KeepsWhatWasPrinted", func(t *testing.T) { testCuts(t, image, events) })
	t.Run("FindsMissingSyncs", func(t *testing.T) { testMissingSyncs(t, image, events) })
}

// testCuts replays the events up to some of them.
func testCuts(t *testing.T, image []byte, events []event) {
	cuts, seed := countOf(t, "CUTS", 8), rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	for range cuts {
		at := random.IntN(len(events) + 1)
		cut := filepath.Join(t.TempDir(), "cut")
		must(t, os.Mkdir(cut, 0o700))
		shown := map[int]int64{}
		data := replay(image, events[:at], shown, random)
		must(t, os.WriteFile(filepath.Join(cut, "weir.db"), data, 0o600))
		checkWriters(t, cut, shown)
		if t.Failed() {
			t.Fatalf("seed %d: cut before the event %d of %d", seed, at, len(events))
		}

		must(t, os.RemoveAll(cut))
	}

	t.Logf("%d cuts in %d events", cuts, len(events))
}

// makeStore makes an empty store.
func makeStore(t *testing.T, dir string) {
	t.Helper()
	store, err := embedded.Open(dir, embedded.Options{})
	must(t, err)
	must(t, store.Close())
}

// testMissingSyncs checks that testCuts finds a loss: if no sync had an effect, messages that were
// printed are missing, or the store does not open.
func testMissingSyncs(t *testing.T, image []byte, events []event) {
	random := rand.New(rand.NewPCG(1, 1))
	var unsynced []event
	for _, e := range events {
		if e.kind != fileSynced {
			unsynced = append(unsynced, e)
		}
	}

	for range 20 {
		cut := filepath.Join(t.TempDir(), "cut")
		must(t, os.Mkdir(cut, 0o700))
		shown := map[int]int64{}
		data := replay(image, unsynced, shown, random)
		must(t, os.WriteFile(filepath.Join(cut, "weir.db"), data, 0o600))
		if isLost(t, cut, shown) {
			return
		}
	}

	t.Error("a record without syncs was whole 20 times, want losses")
}

// isLost reports whether the store in a folder does not open, is damaged, or lacks a message.
func isLost(t *testing.T, dir string, printed map[int]int64) bool {
	t.Helper()
	r, err := embedded.CheckFile(t.Context(), dir, embedded.Options{})
	if err != nil || len(r.Problems) > 0 {
		return true
	}

	store, err := embedded.Open(dir, embedded.Options{})
	if err != nil {
		return true
	}
	defer func() { must(t, store.Close()) }()

	for lane := range writerLanes {
		head, err := store.Table().Get(t.Context(), lanePartition(lane), "!head")
		if err != nil || head.Values["N"].(int64) < printed[lane] {
			return true
		}
	}

	return false
}

// recordWriters runs the writers under strace for some hundred messages, and returns the calls.
func recordWriters(t *testing.T, dir string) []event {
	t.Helper()
	record := filepath.Join(t.TempDir(), "record")
	child := exec.Command("strace", "-f", "-y", "-xx", "-s", "100000000", "-o", record,
		"-e", "trace=pwrite64,ftruncate,fdatasync,fsync,write", "-e", "signal=none", os.Args[0])
	child.Env = append(os.Environ(), childVariable+"="+dir)
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	lines := bufio.NewScanner(out)
	for n := 0; n < 60 && lines.Scan(); n++ {
	}

	// strace ends when its child does; the name of the lock has the child's id.
	must(t, killOwner(dir))
	for lines.Scan() {
	}
	_ = child.Wait()

	return readRecord(t, record, filepath.Join(dir, "weir.db"))
}

var (
	ownerPattern = regexp.MustCompile(`"process":(\d+)`)
	callPattern  = regexp.MustCompile(
		`^(\d+) +(\w+)\((\d+)<([^>]*)>(?:, (?:"([^"]*)"(?:, (\d+))?(?:, (\d+))?|(\d+)))?(.*)$`,
	)
	endPattern = regexp.MustCompile(`^(\d+) +<\.\.\. (\w+) resumed>.* = (-?\d+)`)
)

func killOwner(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "weir.lock"))
	if err != nil {
		return err
	}

	found := ownerPattern.FindSubmatch(text)
	if found == nil {
		return fmt.Errorf("no process in %s", text)
	}

	id, err := strconv.Atoi(string(found[1]))
	if err != nil {
		return err
	}

	process, err := os.FindProcess(id)
	if err != nil {
		return err
	}

	return process.Kill()
}

// readRecord reads the calls for a file, and the printed lines.
func readRecord(t *testing.T, record, path string) (events []event) {
	t.Helper()
	text, err := os.ReadFile(record)
	must(t, err)
	syncing := map[string]int{} // by thread with a sync under way: the number of events before it
	for line := range strings.SplitSeq(string(text), "\n") {
		if end := endPattern.FindStringSubmatch(line); end != nil {
			if covers, isSync := syncing[end[1]]; isSync && end[3] == "0" {
				events = append(events, event{kind: fileSynced, covers: covers})
			}
			delete(syncing, end[1])
			continue
		}

		c := callPattern.FindStringSubmatch(line)
		if c == nil {
			continue
		}

		thread, name, descriptor, file, content, tail := c[1], c[2], c[3],
			decodePath(c[4]), c[5], c[9]

		switch {
		case name == "write" && descriptor == "1":
			events = append(events, event{kind: linePrinted, data: decodeHex(t, content)})
		case file != path:
		case name == "pwrite64":
			offset, err := strconv.ParseInt(c[7], 10, 64)
			must(t, err)
			events = append(events,
				event{kind: fileWritten, data: decodeHex(t, content), offset: offset})

		case name == "ftruncate":
			size, err := strconv.ParseInt(c[8], 10, 64)
			must(t, err)
			events = append(events, event{kind: fileSized, offset: size})

		case strings.Contains(tail, "unfinished"):
			syncing[thread] = len(events)
		case strings.Contains(tail, "= 0"):
			events = append(events, event{kind: fileSynced, covers: len(events)})
		}
	}

	if len(events) < 100 {
		t.Fatalf("the record has %d events, want 100 at least", len(events))
	}

	return events
}

// decodePath decodes a path, which strace shows as text or in hexadecimal.
func decodePath(text string) string {
	if data, err := hex.DecodeString(strings.ReplaceAll(text, `\x`, "")); err == nil {
		return string(data)
	}

	return text
}

func decodeHex(t *testing.T, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(strings.ReplaceAll(text, `\x`, ""))
	must(t, err)

	return data
}

// replay returns the file after a power cut at the end of the events, and notes the printed lines.
func replay(image []byte, events []event, printed map[int]int64, random *rand.Rand) []byte {
	synced := 0
	for _, e := range events {
		if e.kind == fileSynced {
			synced = max(synced, e.covers)
		}
		if e.kind == linePrinted {
			notePrinted(string(e.data), printed)
		}
	}

	disk := append([]byte{}, image...)
	for i, e := range events {
		switch e.kind {
		case fileWritten:
			if i < synced {
				disk = writeSectors(disk, e, func() bool { return true })
			} else {
				keep := random.IntN(3)
				disk = writeSectors(disk, e,
					func() bool { return keep == 0 || keep == 1 && random.IntN(2) == 0 })
			}

		case fileSized:
			if i < synced || random.IntN(2) == 0 {
				disk = resize(disk, e.offset)
			}
		}
	}

	return disk
}

// sector is the number of bytes that a disk writes as a whole.
const sector = 512

func writeSectors(disk []byte, e event, isKept func() bool) []byte {
	for at := 0; at < len(e.data); at += sector {
		if isKept() {
			end := e.offset + int64(min(at+sector, len(e.data)))
			disk = resize(disk, max(end, int64(len(disk))))
			copy(disk[e.offset+int64(at):end], e.data[at:])
		}
	}

	return disk
}

func resize(disk []byte, size int64) []byte {
	if size <= int64(len(disk)) {
		return disk[:size]
	}

	return append(disk, make([]byte, size-int64(len(disk)))...)
}
