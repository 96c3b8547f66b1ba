package main

import (
	"time"

	"weir/functions/view"
)

// reads adds what shows lanes and messages.
func (o *operator) reads() {
	o.view("/api/lanes", &view.Lanes{Source: o.overview, Calendar: o.calendar, Now: time.Now, Logger: o.log})
	o.view("/api/lanes/{lane}", &view.Lane{Source: o.overview, Logger: o.log})
	o.view("/api/errors", &view.Errors{Source: o.overview, Logger: o.log})
	o.view("/api/messages/{id}/body", &view.Body{Bodies: o.store, Logger: o.log})
	o.view("/api/messages/{id}/attempts", &view.Attempts{Source: o.store, Logger: o.log})
}
