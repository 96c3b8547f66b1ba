package linear

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience is the longest time for which porcupine searches one key. If porcupine has no result by
// then, the check fails.
const patience = time.Minute

// Checked has the numbers of checked keys, of checked operations and of excluded keys.
type Checked struct{ Keys, Operations, Excluded int }

// Check checks each key against the model, except excluded keys. If a key breaks the model, Check
// writes a visualization of the key's history to the file <name>-<key>.html in dir, and the error
// names the file.
func (h *History) Check(dir, name string) (Checked, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var done Checked
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(h.keys)) {
		if h.excluded[key] != "" {
			done.Excluded++
			continue
		}

		ops := h.operationsOf(key)
		done.Keys++
		done.Operations += len(ops)

		if result := porcupine.CheckOperationsTimeout(keyModel, ops, patience); result !=
			porcupine.Ok {
			errs = append(errs,
				explainFailure(ops, key, result,
					filepath.Join(dir, name+"-"+fileName(key)+".html")))
		}
	}

	return done, errors.Join(errs...)
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func fileName(key string) string { return notInNames.ReplaceAllString(key, "_") }

func explainFailure(ops []porcupine.Operation, key string, result porcupine.CheckResult,
	path string) error {
	_, info := porcupine.CheckOperationsVerbose(keyModel, ops, patience)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = porcupine.VisualizePath(keyModel, info, path)
	}

	if err != nil {
		path = "nowhere: " + err.Error()
	}

	return fmt.Errorf("the history of key %s is not one of the model (%s): %s; drawn in %s",
		key, result, findReason(ops, info), path)
}

// findReason takes the longest sequence of operations that the model allows. It returns the reason
// why the model does not allow the next operation.
func findReason(ops []porcupine.Operation, info porcupine.LinearizationInfo) string {
	longest := []int{}
	for _, partial := range info.PartialLinearizations()[0] {
		if len(partial) > len(longest) {
			longest = partial
		}
	}

	var s keyState
	for _, id := range longest {
		s, _ = applyOperation(s, ops[id].Input, ops[id].Output)
	}

	// Of the remaining operations, take the operation that returned first. It can be the next one,
	// because no other remaining operation had returned before it began.
	next := -1
	for id, op := range ops {
		if !slices.Contains(longest, id) && (next < 0 || op.Return < ops[next].Return) {
			next = id
		}
	}

	if next < 0 {
		return "undecided"
	}

	_, text := applyOperation(s, ops[next].Input, ops[next].Output)

	return fmt.Sprintf("%s (at %q)", text, describeOperation(ops[next].Input, ops[next].Output))
}
