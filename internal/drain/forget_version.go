package drain

import (
	"context"

	"weir/internal/lane"
)

// forgetVersion grants a request to forget the newest delivered version of a key and contract: from the commit on,
// any version of it is delivered. The session's memory forgets it, too; otherwise the session would still
// supersede by the version that storage has lost.
func (h *requestHandler) forgetVersion(ctx context.Context, r lane.Request, ch *lane.Change) error {
	key := r.SupersedeKey()
	latest, err := h.store.ReadLatestVersion(ctx, h.lane, key)
	if err != nil || latest.IsZero() {
		return err
	}
	ch.ForgetVersion(key)
	h.versions.remember(key, lane.LatestVersion{})
	h.log.Info("drain: version forgotten", "message_id", latest.ID.String(), "fence", h.fence)
	return nil
}
