package schema_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write testdata/schema.golden anew")

const golden = "testdata/schema.golden"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kinds has the purpose of each kind of row, blob, lease and ticket, by its shape. useEachFeature
// must write each kind. If a kind is not written, useEachFeature no longer uses the feature that
// writes this kind.
var kinds = map[string]string{
	"row   <epoch>.<lane> | !head":    "control row of receivers and the API",
	"row   <epoch>.<lane> | !tail":    "control row of the holder",
	"row   <epoch>.<lane> | !mail":    "the outbox may hold events",
	"row   <epoch>.<lane> | !mailed":  "which receivers know that the lane is paused or behind",
	"row   <epoch>.<lane> | !heir":    "claim of a process to the lane",
	"row   <epoch>.<lane> | !swept":   "how far retention has come",
	"row   <epoch>.<lane> | !pause":   "operator's pause of the lane",
	"row   <epoch>.<lane> | w_resume": "request to try the CMS at once",

	"row   <epoch>.<lane> | !pause_<32 hex>":                 "operator's pause of a key",
	"row   <epoch>.<lane> | !replay_<13 digits><8 hex>":      "bulk replay that is under way",
	"row   <epoch>.<lane> | m_<19 digits>":                   "message",
	"row   <epoch>.<lane> | s_<18 digits>_<19 digits>":       "scheduled message, by due time",
	"row   <epoch>.<lane> | x_<19 digits>":                   "dead message, for lists",
	"row   <epoch>.<lane> | i_<32 hex>":                      "idempotency key",
	"row   <epoch>.<lane> | b_<32 hex>":                      "blocked key",
	"row   <epoch>.<lane> | r_<32 hex>_<19 digits>":          "held message of a blocked key",
	"row   <epoch>.<lane> | d_<19 digits>":                   "deliveries at the first attempt, packed",
	"row   <epoch>.<lane> | c_<32 hex>":                      "the CMS's id of a key's item",
	"row   <epoch>.<lane> | k_<32 hex>":                      "version that was delivered last",
	"row   <epoch>.<lane> | l_<32 hex>":                      "last delivery of a key with dead messages",
	"row   <epoch>.<lane> | w_cancel_<19 digits>":            "request to cancel",
	"row   <epoch>.<lane> | w_erase":                         "request to erase the errors in tail",
	"row   <epoch>.<lane> | w_forget_<32 hex>":               "request to forget a version",
	"row   <epoch>.<lane> | w_discard_<19 digits>":           "request to discard a dead message",
	"row   <epoch>.<lane> | w_forgetid_<32 hex>":             "request to forget the CMS's id of a key's item",
	"row   <epoch>.<lane> | w_replay_<19 digits>":            "request to replay",
	"row   <epoch>.<lane> | w_replay_<19 digits>_forced":     "request to replay by force",
	"row   <epoch>.<lane> | o_<number>.<number>.<number>":    "message of an earlier epoch and its copy",
	"row   <epoch>.<lane> | n_<18 digits>_<32 hex>_<12 hex>": "event for a receiver of the settings",
	"row   <epoch>.<lane> | n_<18 digits>_<32 hex>_callback": "event for the receiver of one message",

	"row   <epoch>.<lane> | r_<32 hex>_<19 digits>_<18 digits>_<19 digits>": "held message that was scheduled",

	"row   <epoch>.<lane> | ~copy":  "guard while everything is copied to another store",
	"row   audit | ~copy":           "guard while everything is copied to another store",
	"row   batches | ~copy":         "guard while everything is copied to another store",
	"row   history | ~copy":         "guard while everything is copied to another store",
	"row   meta | ~copy":            "guard while everything is copied to another store",
	"row   operators | ~copy":       "guard while everything is copied to another store",
	"row   replays | ~copy":         "guard while everything is copied to another store",
	"row   upstreams | ~copy":       "guard while everything is copied to another store",
	"row   rates | ~copy":           "guard while everything is copied to another store",
	"row   rates | cms":             "slots of the requests to the CMS",
	"row   rates | ~clock-<number>": "time at which storage wrote the row, for the clocks of processes",

	"row   meta | lanes":                            "number of lanes, and a change of it",
	"row   meta | forgotten":                        "how far the search for lost bodies has come",
	"row   meta | recovered":                        "last recovery of the CMS",
	"row   history | <10 digits>_<10 base32>":       "counters of an instance for one hour",
	"row   audit | <19 digits>_<12 hex>":            "entry of the audit log",
	"row   audit | k_<32 hex>_<19 digits>_<12 hex>": "entry of the audit log, by its subject and keys",
	"row   operators | secret":                      "secret of proofs of sign-in",
	"row   replays | <13 digits><8 hex>":            "bulk replay that is over",
	"row   batches | <13 digits><16 hex>":           "batch",
	"row   batches | !<13 digits><16 hex>":          "batch with work",
	"row   batches | i_<32 hex>":                    "batch of an idempotency key",
	"row   upstreams | quota_newsroom":              "daily quota of an upstream",
	"row   schedules | <name>":                      "schedule",
	"blob  <date>/<number>.<number>/<20 hex>":       "large body",
	"blob  schedules/<name>/<26 base32>":            "large message of a schedule",

	"blob  batches/<13 digits><16 hex>/document/<number>": "chunk of a batch's document",
	"blob  batches/<13 digits><16 hex>/problems":          "problems of a batch's parts",
	"blob  batches/<13 digits><16 hex>/ids/<number>":      "ids of a window of a batch's messages",
	"lease lane-<number>.<number>":                        "holder of a lane",
	"lease mail-<number>.<number>":                        "sender of a lane's events",
	"lease replay-<13 digits><8 hex>":                     "carrier of a bulk replay",
	"lease batch-<13 digits><16 hex>":                     "process that works on a batch",
	"lease lanes":                                         "command that changes the number of lanes",
	"text  weir lane <number>.<number>":                   "ticket of a lane",
	"text  weir lanes <number>":                           "ticket of all lanes",

	"blob  <date>/<number>.<number>/<20 hex>-<19 digits>": "large body that replaces another",
}

func TestSchema_Golden(t *testing.T) {
	t.Parallel()
	written, whole := newRecorder(), false
	defer func() { compareWithGolden(t, written, whole) }() // also if useEachFeature fails
	synctest.Test(t, func(t *testing.T) {
		newWorld(t, written).useEachFeature()
	})
	whole = true
}

// compareWithGolden compares the recorded shapes with kinds and with the golden file. With -update
// it writes the golden file instead of reading it. If whole is false, useEachFeature failed before
// its end. Then compareWithGolden ignores -update, and does not report missing kinds and columns.
func compareWithGolden(t *testing.T, r *recorder, whole bool) {
	t.Helper()
	got := r.formatShapes()

	for shape := range r.shapes {
		if kinds[shape] == "" {
			t.Errorf("the run wrote %q, which is not among the known kinds", shape)
		}
	}

	for shape, purpose := range kinds {
		if whole && r.shapes[shape] == nil {
			t.Errorf("the run wrote no %q (%s): want each kind written once", shape, purpose)
		}
	}

	if *update && whole {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Error(err)
		}
		return
	}

	want, err := os.ReadFile(golden)
	if err != nil {
		t.Error(err)
		return
	}

	missing, added := compareColumns(string(want), got)
	for _, column := range added {
		t.Errorf("newly written: %s, want only columns of the golden file", column)
	}

	for _, column := range missing {
		if whole {
			t.Errorf("no longer written: %s, want each column of the golden file", column)
		}
	}
}

// compareColumns returns the missing columns, which are only in want, and the added columns and
// kinds, which are only in got. It ignores kinds that are only in want, because compareWithGolden
// itself reports each kind that is missing.
func compareColumns(want, got string) (missing, added []string) {
	known, written := parseColumns(want), parseColumns(got)
	for kind := range known {
		if written[kind] == nil {
			continue
		}

		for _, c := range known[kind] {
			if !slices.Contains(written[kind], c) {
				missing = append(missing, kind+": column "+c)
			}
		}

		for _, c := range written[kind] {
			if !slices.Contains(known[kind], c) {
				added = append(added, kind+": column "+c)
			}
		}
	}

	for kind := range written {
		if known[kind] == nil {
			added = append(added, kind)
		}
	}

	slices.Sort(missing)
	slices.Sort(added)

	return missing, added
}

// parseColumns returns the columns of each kind in a text of formatShapes.
func parseColumns(text string) map[string][]string {
	kind, all := "", map[string][]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if column, isColumn := strings.CutPrefix(line, "\t"); isColumn {
			all[kind] = append(all[kind], column)
			continue
		}

		kind = line
		all[kind] = []string{}
	}

	return all
}
