package write

import (
	"log/slog"
	"net/http"

	"weir/internal/httpio"
	"weir/internal/wake"
	"weir/internal/weir"
)

// Resume serves POST /api/resume. All fields are needed.
type Resume struct {
	Pauser Pauser
	Waker  wake.Ringer
	Lanes  int
	LaneOf func(key string) int
	Logger *slog.Logger
}

// ServeHTTP implements http.Handler.
func (f *Resume) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	remaining, err := f.resumeTarget(w, r)
	if err != nil {
		httpio.WriteError(w, r, f.Logger, err)
		return
	}
	writePauses(w, remaining)
}

// resumeTarget resumes the target of a request, and returns all pauses that are still in force.
func (f *Resume) resumeTarget(w http.ResponseWriter, r *http.Request) ([]weir.Pause, error) {
	var in target
	if err := httpio.ReadJSON(w, r, &in); err != nil {
		return nil, err
	}

	lanes, key, err := in.resolveLanes(f.Lanes, f.LaneOf)
	if err != nil {
		return nil, err
	}

	err = forEachLane(lanes, func(i int) error {
		err := f.Pauser.Resume(r.Context(), lanes[i], key)
		if err == nil {
			f.Waker.Ring(lanes[i])
		}
		return err
	})

	f.Logger.Info("write: resumed", "lane", lanes, "key", key, "err", err)
	if err != nil {
		return nil, err
	}

	return f.Pauser.ReadPauses(r.Context())
}
