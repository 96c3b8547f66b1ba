package main

import (
	"weir/functions/view"
	"weir/functions/write"
)

// replays adds what brings a dead message back.
func (o *operator) replays() {
	o.write("/api/messages/{id}/replay", "POST", &write.Replay{Log: o.store, Caller: o.call, Logger: o.log})
	o.write("/api/messages/{id}/edit", "POST", &write.Edit{Contracts: o.contracts, Log: o.store, Caller: o.call, MaxBody: int64(o.settings.MaxBody), Logger: o.log})
	o.view("/api/messages/{id}/difference", &view.Difference{Bodies: o.store, Logger: o.log})
}
