package listing_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"

	"weir/internal/storage/listing"
)

var errAway = errors.New("away")

// pages has three listings, with 2, 0 and 3 pages. A visit of each page fails once.
func TestWalk_ContinuesAtThePageThatFailed(t *testing.T) {
	t.Parallel()
	prefixes, pages := []string{"a", "b", "c"}, map[string]int{"a": 2, "b": 1, "c": 3}
	var visited []string
	failed := map[string]bool{}
	visit := func(prefix, marker string) (string, error) {
		page, _ := strconv.Atoi(marker)
		name := prefix + strconv.Itoa(page)
		if !failed[name] {
			failed[name] = true
			return "", errAway
		}

		visited = append(visited, name)
		if page+1 == pages[prefix] {
			return "", nil
		}

		return strconv.Itoa(page + 1), nil
	}

	marker, calls := "", 0
	for isDone := false; !isDone; calls++ {
		var err error
		marker, isDone, err = listing.Walk(prefixes, marker, visit)
		if isDone == (err != nil) {
			t.Fatalf("got done %v with the error %v", isDone, err)
		}
	}

	if want := []string{"a0", "a1", "b0", "c0", "c1", "c2"}; !slices.Equal(visited, want) ||
		calls != 7 {
		t.Errorf("got the pages %v in %d calls, want %v in 7", visited, calls, want)
	}

	if marker != "" {
		t.Errorf("got the marker %q at the end, want none", marker)
	}
}

// A marker of another version of the program, or of a longer list of prefixes, does no harm.
func TestWalk_OtherMarkers(t *testing.T) {
	t.Parallel()
	for marker, want := range map[string]int{"x": 2, "-1:a": 2, "7:a": 0, "1:": 1} {
		visits := 0
		_, isDone, err := listing.Walk([]string{"a", "b"}, marker,
			func(string, string) (string, error) {
				visits++
				return "", nil
			})
		if err != nil || !isDone || visits != want {
			t.Errorf("marker %q: got %d visits, done %v, %v; want %d visits", marker, visits,
				isDone, err, want)
		}
	}
}
