package app

import (
	"fmt"
	"io/fs"
	"math"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

const (
	// outsideGo is the memory that Go's limit does not include. Most of it is the mapped binary.
	outsideGo = 32 << 20
	// leastMemory is the lowest limit that limitMemory sets. Under a lower limit the collector
	// would run all the time.
	leastMemory = 64 << 20
	// mostMemory bounds the memory that is divided into budgets. Larger budgets would not make Weir
	// accept messages faster.
	mostMemory = 1 << 30
)

// limitMemory sets the memory limit of Go's garbage collector, unless GOMEMLIMIT sets it. The host
// and the handler share the instance, so the handler takes half of the instance's memory. This half
// includes outsideGo.
func limitMemory(env func(string) string, root fs.FS) {
	if env("GOMEMLIMIT") != "" {
		return
	}
	if available := availableMemory(root); available > 0 {
		debug.SetMemoryLimit(max(available/2-outsideGo, leastMemory))
	}
}

// availableMemory returns the memory of this instance in bytes: the machine's memory, or the lowest
// limit of the process's cgroups if this limit is lower. It returns 0 if the memory is not known.
func availableMemory(root fs.FS) int64 {
	least := machineMemory(root)
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		// A line has the form hierarchy:controllers:path. In version 2 of cgroups, the part
		// controllers is empty.
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}

		dir, file := "", ""
		switch {
		case fields[1] == "":
			dir, file = "sys/fs/cgroup", "memory.max"
		case slices.Contains(strings.Split(fields[1], ","), "memory"):
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}

		if limit := lowestLimit(root, dir, fields[2], file); limit > 0 &&
			(least == 0 || limit < least) {
			least = limit
		}
	}

	return least
}

// lowestLimit returns the lowest limit in a cgroup and all its parents, or 0 if there is no limit.
// In a container, group can be a path that exists only outside of the container. The container sees
// its own cgroup as the root, so lowestLimit finds the container's limit at the root.
func lowestLimit(root fs.FS, dir, group, file string) (least int64) {
	for group = path.Clean("/" + group); ; group = path.Dir(group) {
		text, err := fs.ReadFile(root, path.Join(dir, group, file))

		// Without a limit, the file has the word "max" (version 2), or a number above the memory of
		// any machine (version 1).
		n, parseErr := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && parseErr == nil && n > 0 && (least == 0 || n < least) {
			least = n
		}

		if group == "/" {
			return least
		}
	}
}

// machineMemory returns the memory of the machine in bytes; 0 = not known. The first line of
// /proc/meminfo has the number, for example in the form "MemTotal: 8123456 kB".
func machineMemory(root fs.FS) int64 {
	text, _ := fs.ReadFile(root, "proc/meminfo")
	first, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(first)
	if len(fields) != 3 || fields[0] != "MemTotal:" || fields[2] != "kB" {
		return 0
	}

	n, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil || n > math.MaxInt64>>10 {
		return 0
	}

	return n << 10
}

// budgets are shares of the memory limit. The remaining memory is for bodies that are
// fetched ahead, for messages without their bodies, and for the garbage collector.
type budgets struct {
	limit  int64 // memory limit of the garbage collector, in bytes
	intake int64 // bytes for received bodies that are not stored yet
	parse  int64 // bytes for documents while they are parsed
	// validate is for bodies that are only checked. It is apart from intake, because the key of the
	// function "validate" is given to more callers than the keys that can store messages.
	validate  int64 // bytes
	corrected int64 // bytes for corrected bodies and definitions of schedules
	turns     int64 // bytes for comparisons and previews
	reads     int64 // bytes for stored bodies that operators read
	lanes     int64 // bytes for bodies of messages that wait for their delivery, or are delivered
	waits     int   // largest number of answers that wait for an outcome at the same time
}

const (
	// bodyFactor is the memory that a body with few elements takes, divided by the body's size.
	// Half of this memory is for receiving and storing the body, and half for parsing the body.
	bodyFactor = 8
	// waitBytes is the memory of one waiting answer and its connection.
	waitBytes = 64 << 10
)

// currentBudgets returns the budgets under the present memory limit. SetMemoryLimit(-1) only reads
// this limit.
func currentBudgets() budgets { return shareMemory(debug.SetMemoryLimit(-1)) }

func shareMemory(limit int64) budgets {
	shared := min(limit, mostMemory)
	return budgets{limit: limit, intake: shared / 4, parse: shared / 4, validate: shared / 16,
		corrected: shared / 16, turns: shared / 8, reads: shared / 16, lanes: shared / 8,
		waits: int(shared / waitBytes)}
}

// checkMaxBody returns an error if a body of maxBody bytes needs more than three quarters of the
// memory limit.
func (b budgets) checkMaxBody(maxBody int64) error {
	most := b.limit / 4 * 3 / bodyFactor
	if maxBody <= most {
		return nil
	}
	return fmt.Errorf("maxBody is %d bytes, and this instance can hold bodies of up to %d: "+
		"a body takes %d times its size, and the memory limit is %d bytes", maxBody, most,
		bodyFactor, b.limit)
}
