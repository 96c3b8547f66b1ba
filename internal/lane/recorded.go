package lane

import (
	"context"

	"weir/internal/storage"
)

// Recorded is the number of lanes as storage has it, 0 where it was never used. It changes
// nothing there.
func Recorded(ctx context.Context, table storage.Table) (int, error) {
	row, err := table.Get(ctx, metaPartition, lanesKey)
	if storage.Is(err, storage.NotFound) {
		return 0, nil
	}
	return int(values{row.Values}.int("Lanes")), err
}
