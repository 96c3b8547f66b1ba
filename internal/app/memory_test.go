package app

import (
	"math"
	"strings"
	"testing"
	"testing/fstest"
)

func TestAvailableMemory(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"Nothing": {nil, 0},
		"Machine": {map[string]string{"proc/meminfo": "MemTotal:        2097152 kB\nMemFree: 1 kB\n"},
			2048 * mib},
		"Version2": {map[string]string{"proc/meminfo": "MemTotal: 2097152 kB\n",
			"proc/self/cgroup":             "0::/app\n",
			"sys/fs/cgroup/app/memory.max": "536870912\n"}, 512 * mib},
		"Container": {map[string]string{"proc/meminfo": "MemTotal: 2097152 kB\n",
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n"}, 512 * mib},
		"SeenFromInside": {map[string]string{"proc/self/cgroup": "0::/docker/4711\n",
			"sys/fs/cgroup/memory.max": "536870912\n"}, 512 * mib},
		"Above": {map[string]string{"proc/self/cgroup": "0::/slice/app\n",
			"sys/fs/cgroup/slice/memory.max":     "268435456\n",
			"sys/fs/cgroup/slice/app/memory.max": "536870912\n"},
			256 * mib},
		"NoLimit": {map[string]string{"proc/meminfo": "MemTotal: 2097152 kB\n",
			"proc/self/cgroup": "0::/app\n", "sys/fs/cgroup/app/memory.max": "max\n"}, 2048 * mib},
		"Version1": {map[string]string{"proc/meminfo": "MemTotal: 2097152 kB\n",
			"proc/self/cgroup": "5:devices:/x\n4:cpu,memory:/app\n0::/\n",
			"sys/fs/cgroup/memory/app/memory.limit_in_bytes": "536870912\n"}, 512 * mib},
		"Version1None": {map[string]string{"proc/meminfo": "MemTotal: 2097152 kB\n",
			"proc/self/cgroup": "4:memory:/app\n",
			"sys/fs/cgroup/memory/app/memory.limit_in_bytes": "9223372036854771712\n"}, 2048 * mib},
		"Garbage": {map[string]string{"proc/meminfo": "MemTotal: many kB\n",
			"proc/self/cgroup":         "memory\n4:memory:../..\n0::/\n",
			"sys/fs/cgroup/memory.max": "-1\n"}, 0},
	} {
		root := fstest.MapFS{}
		for name, text := range c.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}

		if got := availableMemory(root); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

func TestBudgets(t *testing.T) {
	t.Parallel()
	small, none := shareMemory(224<<20), shareMemory(math.MaxInt64)
	if all := small.intake + small.parse + int64(small.waits)*waitBytes; all > 2*small.limit ||
		small.waits < 3000 ||
		small.intake != 56<<20 {
		t.Errorf("limit of 224 MiB: got %+v, want intake of 56 MiB, 3000 waits or more, and at most twice the limit "+
			"in all",
			small)
	}

	if small.validate != 14<<20 || small.corrected != 14<<20 || small.turns != 28<<20 {
		t.Errorf("limit of 224 MiB: got %+v, want 14 MiB for validate and for corrected bodies, and 28 MiB for turns",
			small)
	}

	if none.intake != mostMemory/4 || none.checkMaxBody(100<<20) != nil {
		t.Errorf("without a limit: got %+v (%v), want intake of 256 MiB and no error", none,
			none.checkMaxBody(100<<20))
	}

	if err := small.checkMaxBody(20 << 20); err != nil {
		t.Errorf("20 MiB in 224 MiB: got %v, want no error", err)
	}

	if err := small.checkMaxBody(100 << 20); err == nil ||
		!strings.Contains(err.Error(), "maxBody is 104857600 bytes") {
		t.Errorf("100 MiB in 224 MiB: got %v, want an error with the size", err)
	}
}
