package weir_test

import (
	"fmt"
	"time"

	"weir/internal/weir"
)

func ExampleParseDelay() {
	now := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	for _, text := range []string{"90s", "PT90S", "P1M", "tomorrow"} {
		due, err := weir.ParseDelay(text, now)
		if err != nil {
			fmt.Println(text, "is no delay")
			continue
		}
		fmt.Println(text, due.Format(time.RFC3339))
	}
	// Output:
	// 90s 2026-01-31T08:01:30Z
	// PT90S 2026-01-31T08:01:30Z
	// P1M 2026-03-03T08:00:00Z
	// tomorrow is no delay
}

// Upstreams treat a message's id as opaque text. Weir parses the text to find the message's row.
func ExampleID() {
	id := weir.ID{Epoch: 1, Lane: 3, Seq: 42, Nonce: "00112233445566778899"}
	text := id.String()
	parsed, err := weir.ParseID(text)
	fmt.Println(text, parsed == id, err)
	// Output:
	// AQMqABEiM0RVZneImQ true <nil>
}
