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
	// leastMemory is the lowest limit that limitMemory sets. Under a lower limit the collector would run all the time.
	leastMemory = 64 << 20
	// mostMemory is the largest part of the limit that is divided into budgets. Larger budgets do not make the receipt
	// of messages faster.
	mostMemory = 1 << 30
)

// limitMemory sets the memory limit of Go's garbage collector, unless GOMEMLIMIT sets it. The host and the handler
// share the instance, so the handler takes half of the instance's memory, including outsideGo.
func limitMemory(env func(string) string, root fs.FS) {
	if env("GOMEMLIMIT") != "" {
		return
	}
	if available := availableMemory(root); available > 0 {
		debug.SetMemoryLimit(max(available/2-outsideGo, leastMemory))
	}
}

// availableMemory returns the memory of this instance: the lowest limit of the process's cgroups,
// or the machine's memory; 0 = not known.
func availableMemory(root fs.FS) int64 {
	least := machineMemory(root)
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		// The line is hierarchy:controllers:path. In version 2 of cgroups, the controllers are empty.
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
		if limit := lowestLimit(root, dir, fields[2], file); limit > 0 && (least == 0 || limit < least) {
			least = limit
		}
	}
	return least
}

// lowestLimit returns the lowest limit of a cgroup and of the cgroups above it; 0 = no limit. In a container, the
// parameter group may be the path of the cgroup on the machine. The container has no files at that path, because it
// sees its own cgroup as the root.
func lowestLimit(root fs.FS, dir, group, file string) (least int64) {
	for group = path.Clean("/" + group); ; group = path.Dir(group) {
		text, err := fs.ReadFile(root, path.Join(dir, group, file))
		// If there is no limit, the file has the word "max" (version 2), or a number above the memory of any machine
		// (version 1).
		n, parseErr := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && parseErr == nil && n > 0 && (least == 0 || n < least) {
			least = n
		}
		if group == "/" {
			return least
		}
	}
}

// machineMemory returns the machine's memory. It reads the first line of /proc/meminfo, such as
// "MemTotal: 8123456 kB". 0 = not known.
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

// budgets are shares of the memory limit. The rest is for the drainer and the garbage collector.
type budgets struct {
	limit  int64 // memory limit of the garbage collector, in bytes
	intake int64 // bytes for bodies from their receipt until they are stored
	parse  int64 // bytes for documents that are parsed
	waits  int   // largest number of answers that wait for an outcome at the same time
}

const (
	// bodyFactor is the memory that a body with few elements takes, divided by its size. Half of this memory is for
	// the receipt and the storing of the body, and half for parsing it.
	bodyFactor = 8
	// waitBytes is the memory of one waiting answer, with its connection.
	waitBytes = 64 << 10
)

// currentBudgets returns the budgets under the collector's present limit.
func currentBudgets() budgets { return shareMemory(debug.SetMemoryLimit(-1)) }

func shareMemory(limit int64) budgets {
	shared := min(limit, mostMemory)
	return budgets{limit: limit, intake: shared / 4, parse: shared / 4, waits: int(shared / waitBytes)}
}

// checkMaxBody returns an error if a body of maxBody bytes needs more than three quarters of the memory limit.
func (b budgets) checkMaxBody(maxBody int64) error {
	most := b.limit / 4 * 3 / bodyFactor
	if maxBody <= most {
		return nil
	}
	return fmt.Errorf("maxBody is %d bytes, and this instance can hold bodies of up to %d: "+
		"a body takes %d times its size, and the memory limit is %d bytes", maxBody, most, bodyFactor, b.limit)
}
