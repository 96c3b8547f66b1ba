package lane_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/lane"
	"weir/internal/storage"
	"weir/internal/storage/memory"
)

// BenchmarkAppend compares Append with a plain transaction on the same kind of storage.
func BenchmarkAppend(b *testing.B) {
	open := func(b *testing.B) *lane.Store {
		account := memory.New(time.Now)
		s := &lane.Store{Table: account.Table(), Bodies: account.Blobs(), Lanes: 1, Now: time.Now}
		if err := s.Open(b.Context()); err != nil {
			b.Fatal(err)
		}
		return s
	}

	b.Run("bare", func(b *testing.B) {
		s := open(b)
		for i := 0; b.Loop(); i++ {
			_, err := s.Table.Transact(b.Context(), "bare",
				[]storage.Op{{Kind: storage.Upsert, Key: "!head",
					Values: map[string]any{"Next": int64(i)}},
					{Kind: storage.Insert, Key: fmt.Sprint("m_", i),
						Values: map[string]any{"Body": []byte("<a/>")}}})
			if err != nil {
				b.Fatal(err)
			}
		}
	})

	b.Run("append", func(b *testing.B) {
		a := lane.NewAppender(open(b), quiet)
		for i := 0; b.Loop(); i++ {
			if _, err := a.Append(b.Context(), newMessage(fmt.Sprint(i), "<a/>"), ""); err != nil {
				b.Fatal(err)
			}
		}
	})

	b.Run("gathered", func(b *testing.B) {
		a := lane.NewAppender(open(b), quiet)
		var n atomic.Int64
		b.SetParallelism(32)
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if _, err := a.Append(b.Context(), newMessage(fmt.Sprint(n.Add(1)), "<a/>"), ""); err != nil {
					b.Error(err)
				}
			}
		})
	})
}
