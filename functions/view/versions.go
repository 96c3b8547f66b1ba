package view

import (
	"context"
	"log/slog"
	"net/http"

	"weir/internal/httpio"
	"weir/internal/lane"
	"weir/internal/query"
	"weir/internal/wire"
)

// VersionReader reads the newest delivered version of a key and contract; the zero value = no
// version. See lane.Messages.
type VersionReader interface {
	FindLatestVersion(ctx context.Context, key, contract string) (lane.LatestVersion, error)
}

// Versions serves GET /api/versions. All fields are needed.
type Versions struct {
	Reader    VersionReader
	Contracts []string // the names of all contracts with the setting "supersede"
	LaneOf    func(key string) int
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

	list := wire.VersionList{Key: key, Lane: f.LaneOf(key), Versions: []wire.Version{}}
	for _, name := range contracts {
		latest, err := f.Reader.FindLatestVersion(r.Context(), key, name)
		if err != nil {
			return wire.VersionList{}, err
		}

		if !latest.IsZero() {
			list.Versions = append(list.Versions,
				wire.Version{Contract: name, Version: latest.Version,
					MessageID: latest.ID.String(), Warning: latest.Warning})
		}
	}

	return list, nil
}

// readKeyAndContracts returns the key and the contract that a request names. If the request names
// no contract, readKeyAndContracts returns all given contracts.
func readKeyAndContracts(r *http.Request, contracts []string) (key string, asked []string,
	err error) {
	p := query.New(r.URL.Query())
	p.RefuseOthers("key", "contract")
	key = p.ReadText("key")
	if !p.Values.Has("key") {
		p.AddProblem("key", "is missing")
	}

	if name := p.ReadText("contract"); name != "" {
		contracts = []string{name} // can be a contract that the settings no longer have
	}

	return key, contracts, p.ToError()
}
