package drain

import (
	"context"

	"weir/internal/lane"
)

// forgetVersion grants a request to forget which version of a key and contract was delivered last. As soon as that is
// committed, this version supersedes no message any more. The session forgets it, too. Otherwise the session would
// still supersede messages by that version, although storage no longer has it.
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
