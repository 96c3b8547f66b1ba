package view

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/httpio"
	"weir/internal/wire"
)

// RememberedReader reads the remembered id of a key and contract; "" = no id. See lane.Messages.
type RememberedReader interface {
	FindRemembered(ctx context.Context, key, contract string) (string, error)
}

// Remembered serves GET /api/remembered. All fields are needed.
type Remembered struct {
	Reader    RememberedReader
	Contracts []string // the names of all contracts in the settings
	LaneOf    func(key string) int
	Logger    *slog.Logger
}

// ServeHTTP implements http.Handler.
func (f *Remembered) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	list, err := f.readRemembered(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	httpio.WriteJSON(w, http.StatusOK, list)
}

func (f *Remembered) readRemembered(r *http.Request) (wire.RememberedList, error) {
	key, contracts, err := readKeyAndContracts(r, f.Contracts)
	if err != nil {
		return wire.RememberedList{}, err
	}

	list := wire.RememberedList{Key: key, Lane: f.LaneOf(key), Remembered: []wire.RememberedID{}}
	for _, name := range contracts {
		id, err := f.Reader.FindRemembered(r.Context(), key, name)
		if err != nil {
			return wire.RememberedList{}, err
		}

		if id != "" {
			list.Remembered = append(list.Remembered, wire.RememberedID{Contract: name, ID: id})
		}
	}

	return list, nil
}
