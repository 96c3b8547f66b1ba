package dashboard

import "strings"

// List prices in USD per 10,000 transactions: Azure Storage, general-purpose v2, LRS, hot, as published at
// azure.microsoft.com/pricing/details/storage (tables, queues, blobs) in November 2026. They differ by region
// and contract. docs/scale.md uses the same prices.
const (
	tablePrice     = 0.00036
	queuePrice     = 0.004
	blobWritePrice = 0.05
	blobOtherPrice = 0.004
)

// blobWrites are the operations on blobs that Azure bills as writes. Deletions are free.
var blobWrites = map[string]bool{"blob put": true, "blob list": true, "blob create": true}

// meter has the cost of the storage transactions in a period.
type meter struct {
	Transactions int64
	Tables       int64
	Queues       int64
	Blobs        int64   // transactions of blobs and of leases
	Messages     int64   // accepted messages, or delivered and dead ones, whichever are more
	PerMessage   float64 // transactions for each message
	PerMillion   float64 // USD for a million messages
	Known        bool    // Messages is above 0, so the costs are known
}

func newMeter(s Step) meter {
	m := meter{Messages: max(s.Accepted, s.Delivered+s.Dead)}
	usd := 0.0
	for name, n := range s.Transactions {
		m.Transactions += n
		usd += float64(n) / 10_000 * priceOf(name)
		switch service, _, _ := strings.Cut(name, " "); service {
		case "table":
			m.Tables += n
		case "queue":
			m.Queues += n
		default:
			m.Blobs += n
		}
	}
	if m.Known = m.Messages > 0; m.Known {
		m.PerMessage = float64(m.Transactions) / float64(m.Messages)
		m.PerMillion = usd / float64(m.Messages) * 1_000_000
	}
	return m
}

// priceOf returns the price of 10,000 transactions of a kind.
func priceOf(name string) float64 {
	switch service, _, _ := strings.Cut(name, " "); {
	case service == "table":
		return tablePrice
	case service == "queue":
		return queuePrice
	case name == "blob delete":
		return 0
	case blobWrites[name]:
		return blobWritePrice
	}
	return blobOtherPrice
}
