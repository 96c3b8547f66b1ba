package recur_test

import (
	"fmt"
	"time"

	"weir/internal/recur"
)

// On 29 March 2026 clocks in Berlin skip 02:30, so the schedule has no run on that day.
func ExamplePlan_Preview() {
	plan, err := recur.NewPlan(recur.Definition{Cron: "30 2 * * *", TimeZone: "Europe/Berlin"},
		time.Time{})
	if err != nil {
		panic(err)
	}

	preview := plan.Preview(time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC), 3)
	for _, run := range preview.Runs {
		fmt.Println(run.DueAt.UTC().Format(time.RFC3339))
	}

	fmt.Println("left out:", len(preview.Skipped))
	// Output:
	// 2026-03-28T01:30:00Z
	// 2026-03-30T00:30:00Z
	// 2026-03-31T00:30:00Z
	// left out: 1
}
