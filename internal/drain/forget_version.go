package drain

import (
	"context"

	"weir/internal/lane"
)

// forgetVersion grants a request to forget the version that was delivered last for a key and contract. When the change
// is committed, this version supersedes no message any more. forgetVersion also removes the version from the session's
// memory. Otherwise the session would still supersede messages because of that version.
func (h *requestHandler) forgetVersion(ctx context.Context, r lane.Request, ch *lane.Change) error {
	key := r.SupersedeKey()
	latest, err := h.store.DeliveryState().ReadLatestVersion(ctx, h.lane, key)
	if err != nil {
		return err
	}
	h.versions.remember(key, lane.LatestVersion{})
	if latest.IsZero() {
		return nil
	}
	ch.ForgetVersion(key)
	h.log.Info("drain: version forgotten", "message_id", latest.ID.String(), "fence", h.fence)
	return nil
}
