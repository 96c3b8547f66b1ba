package main

import (
	"time"

	"weir/functions/view"
	"weir/functions/write"
)

// pauses adds what stops lanes and keys, and lets them go on.
func (o *operator) pauses() {
	lanes := o.settings.Lanes
	o.view("/api/pauses", &view.Pauses{Reader: o.store, Calendar: o.calendar, Now: time.Now, Logger: o.log})
	o.write("/api/pause", "POST", &write.Pause{Pauser: o.store, Lanes: lanes, Now: time.Now, Logger: o.log})
	o.write("/api/resume", "POST", &write.Resume{Pauser: o.store, Caller: o.call, Lanes: lanes, Logger: o.log})
}
