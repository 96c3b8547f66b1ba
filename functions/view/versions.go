package view

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/wire"
)

// VersionReader reads the newest delivered version of a key and contract; see lane.Messages.
type VersionReader interface {
	FindLatestVersion(ctx context.Context, key, contract string) (lane.LatestVersion, error)
}

// Versions serves GET /api/versions. All fields are needed.
type Versions struct {
	Reader    VersionReader
	Contracts []string // those contracts of the settings whose messages supersede each other
	Lanes     int
	Logger    *slog.Logger
}

// ServeHTTP implements http.Handler.
func (f *Versions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	list, err := f.readVersions(r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	httpio.WriteJSON(w, http.StatusOK, list)
}

func (f *Versions) readVersions(r *http.Request) (wire.VersionList, error) {
	key, contracts, err := readKeyAndContracts(r, f.Contracts)
	if err != nil {
		return wire.VersionList{}, err
	}
	list := wire.VersionList{Key: key, Lane: lane.Of(key, f.Lanes), Versions: []wire.Version{}}
	for _, name := range contracts {
		latest, err := f.Reader.FindLatestVersion(r.Context(), key, name)
		if err != nil {
			return wire.VersionList{}, err
		}
		if !latest.IsZero() {
			list.Versions = append(list.Versions, wire.Version{Contract: name, Version: latest.Version,
				MessageID: latest.ID.String(), Warning: latest.Warning})
		}
	}
	return list, nil
}

// readKeyAndContracts returns the key in a request, and the contract that the request names. If the request
// names no contract, readKeyAndContracts returns the given contracts.
func readKeyAndContracts(r *http.Request, contracts []string) (key string, asked []string, err error) {
	p := &parameters{values: r.URL.Query()}
	p.refuseOthers("key", "contract")
	key = p.readText("key")
	if !p.values.Has("key") {
		p.addProblem("key", "is missing")
	}
	if name := p.readText("contract"); name != "" {
		contracts = []string{name} // even if the settings do not have this contract any more
	}
	return key, contracts, p.toError()
}
