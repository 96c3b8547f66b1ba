package job_test

import (
	"slices"
	"testing"
	"time"

	"weir/internal/job"
)

func TestNewID(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 8, 12, 0, 0, 0, time.UTC)
	older, newer := job.NewID(now, 4), job.NewID(now.Add(time.Millisecond), 4)
	if newer >= older || newer[:13] != job.IDPrefix(now.Add(time.Millisecond)) ||
		job.NewID(now, 4) == older {
		t.Errorf("got %s and later %s, want the newer one first, and random ends", older, newer)
	}

	texts := []string{older, older[1:], older + "00", "!" + older[1:], older[:20] + "G", "", "x"}
	want := []bool{true, false, false, false, false, false, false}
	var got []bool
	for _, text := range texts {
		got = append(got, job.IsID(text, 4))
	}

	if !slices.Equal(got, want) || job.IsID(older, 8) || !job.IsID(job.NewID(now, 8), 8) {
		t.Errorf("IsID of %q: got %v, want %v", texts, got, want)
	}
}
