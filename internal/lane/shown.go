package lane

import (
	"encoding/json"
	"fmt"
)

// packShown encodes the shown values of a message as JSON for a row. If there are no values, it
// returns "".
func packShown(values map[string]string) string {
	if len(values) == 0 {
		return ""
	}

	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // impossible: a map of strings can always be encoded
	}

	return string(text)
}

func unpackShown(text string) (values map[string]string, err error) {
	if text == "" {
		return nil, nil
	}

	if err := json.Unmarshal([]byte(text), &values); err != nil {
		return nil, fmt.Errorf("shown values: %w", err)
	}
	return values, nil
}
