package dashboard

import "strings"

// List prices in USD per 10,000 transactions: Azure Storage, general-purpose v2, LRS, hot, as
// published at azure.microsoft.com/pricing/details/storage (tables, queues, blobs) in November
// 2026. Prices differ by region and by agreement with Microsoft. docs/scale.md uses the same
// prices.
const (
	tablePrice     = 0.00036
	queuePrice     = 0.004
	blobWritePrice = 0.05
	blobOtherPrice = 0.004
)

// blobWrites has the names of the blob operations that Azure bills as writes.
var blobWrites = map[string]bool{"blob put": true, "blob list": true, "blob create": true}

// meter has the cost of the storage transactions in a period.
type meter struct {
	Transactions int64
	Tables       int64
	Queues       int64
	Blobs        int64 // transactions of blobs and of leases
	// the larger of two numbers: accepted messages, and delivered plus dead messages
	Messages   int64
	PerMessage float64 // transactions per message
	PerMillion float64 // USD per million messages
	Known      bool    // PerMessage and PerMillion are known, because Messages is not 0
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

// priceOf returns the price in USD of 10,000 transactions with this name, such as "table query".
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
