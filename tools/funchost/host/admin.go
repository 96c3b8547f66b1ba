package host

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Status is the answer to GET /admin/host/status.
type Status struct {
	State     string           `json:"state"`
	Version   string           `json:"version"`
	Instances []InstanceStatus `json:"instances"`
	// Replaced has the instances that have a successor, but have not ended yet. An instance gets a
	// successor after a restart or an idle time.
	Replaced []InstanceStatus `json:"replaced,omitempty"`
	// Transactions counts the host's own requests to storage, by service and operation.
	Transactions map[string]int64 `json:"transactions"`
	// Logged counts the lines that the real host would have logged, by category.
	Logged map[string]Logged `json:"logged"`
}

// InstanceStatus is the part of Status for one instance. A PID of 0 means that no handler runs.
type InstanceStatus struct {
	Number   int    `json:"number"`
	Group    string `json:"group,omitempty"`
	State    string `json:"state"` // starting, running, exited (with code 0), scaled in, or gone
	PID      int    `json:"pid"`
	Port     int    `json:"port"`
	WorkerID string `json:"workerId"`
	// Requests is the number of HTTP requests in flight on the instance. Invocations is the number
	// of invocations in flight that queues and timers started.
	Requests    int `json:"requests"`
	Invocations int `json:"invocations"`
}

// Status returns the states of the host and its instances.
func (h *Host) Status() Status {
	s := Status{State: "Running", Version: hostVersion, Transactions: h.Transactions(),
		Logged: h.Logged()}
	for _, i := range h.allInstances() {
		one := i.readStatus()
		if one.State == string(starting) {
			s.State = "Initialized"
		}
		s.Instances = append(s.Instances, one)
	}

	for _, i := range h.allReplaced() {
		s.Replaced = append(s.Replaced, i.readStatus())
	}

	return s
}

func (i *instance) readStatus() InstanceStatus {
	at, p, _, _ := i.readState()
	s := InstanceStatus{Number: i.number, Group: i.group, State: string(at), Port: i.handlerPort}
	if at == gone && i.isScaledIn.Load() {
		s.State = "scaled in"
	}

	s.Requests, s.Invocations, _ = i.inFlight.readCounts()
	if p != nil {
		s.WorkerID = p.workerID
		if at != exited {
			s.PID = p.processID()
		}
	}

	return s
}

type adminAPI struct{ *Host }

// adminHandler serves /admin: the host's status, drain and restart, and the manual start of
// functions. It also serves addresses that the real host does not have:
//
//	POST   /admin/host/instances           adds an instance; ?group=process limits it to that group of functions
//	POST   /admin/host/instances/{n}/stop  stops instance n, as SIGTERM stops a whole host
//	DELETE /admin/host/instances/{n}       kills instance n; queue messages of its invocations stay invisible
func (h adminAPI) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /admin/host/status",
		func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, h.Status()) })
	mux.HandleFunc("GET /admin/host/ping",
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("POST /admin/functions/{name}", h.startFunction)
	mux.HandleFunc("POST /admin/host/drain",
		func(w http.ResponseWriter,
			_ *http.Request) {
			h.Drain()
			w.WriteHeader(http.StatusAccepted)
		})

	mux.HandleFunc("GET /admin/host/drain/status",
		func(w http.ResponseWriter,
			_ *http.Request) {
			writeJSON(w, http.StatusOK, h.DrainStatus())
		})

	mux.HandleFunc("POST /admin/host/restart", func(w http.ResponseWriter, _ *http.Request) {
		if err := h.Restart(); err != nil {
			writeJSON(w, http.StatusInternalServerError, map[string]string{"error": err.Error()})
			return
		}
		writeJSON(w, http.StatusOK, h.Status())
	})

	mux.HandleFunc("POST /admin/host/instances", func(w http.ResponseWriter, r *http.Request) {
		if _, err := h.addInstance(GroupName(r.FormValue("group"))); err != nil {
			writeJSON(w, http.StatusInternalServerError, map[string]string{"error": err.Error()})
			return
		}
		writeJSON(w, http.StatusCreated, h.Status())
	})

	mux.HandleFunc("POST /admin/host/instances/{n}/stop", h.onInstance(func(i *instance) {
		h.console.logOwn("Instance %d is stopped by request.", i.number)
		i.endInOrder(h.cfg.StopWait, i.awaitHTTP)
	}))

	mux.HandleFunc("DELETE /admin/host/instances/{n}", h.onInstance(func(i *instance) {
		h.console.logOwn("Instance %d is crashed by request.", i.number)
		i.crash()
		<-i.ended
	}))

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.cfg.EnableAuth && !equalKeys(givenKey(r), h.cfg.MasterKey) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client has gone away
}

// onInstance calls "do" with the instance that the path names, and answers with the host's status.
func (h adminAPI) onInstance(do func(*instance)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.PathValue("n"))
		all := h.allInstances()
		if err != nil || n < 1 || n > len(all) {
			w.WriteHeader(http.StatusNotFound)
			return
		}

		do(all[n-1])
		writeJSON(w, http.StatusOK, h.Status())
	}
}

// startFunction starts a function without an HTTP trigger, and does not wait for its result. The
// request body of a queue function is JSON such as {"input":"…"}: the input is the text of the
// queue message.
func (h adminAPI) startFunction(w http.ResponseWriter, r *http.Request) {
	var body struct{ Input string }
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err == nil && len(raw) > 0 {
		err = json.Unmarshal(raw, &body)
	}

	f := h.findFunction(r.PathValue("name"))
	switch {
	case f == nil:
		w.WriteHeader(http.StatusNotFound)
	case err != nil || f.isHTTP():
		w.WriteHeader(http.StatusBadRequest)
	case !h.startManually(f, body.Input):
		http.Error(w, "Function host is not running.", http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func (h adminAPI) findFunction(name string) *function {
	for _, f := range h.app.functions {
		if strings.EqualFold(f.name, name) {
			return f
		}
	}
	return nil
}

func (h adminAPI) startManually(f *function, input string) bool {
	i, leave := h.pickInstance(f)
	h.mu.Lock()
	defer h.mu.Unlock()

	if i == nil || h.isStopping {
		leave()
		return false
	}

	now := h.console.now()
	var body []byte
	if f.hasTrigger("timerTrigger") {
		// no error, because the host has checked the pattern at its start
		s, _ := parseSchedule(f.trigger.pattern)
		body = timerPayload(f, s.isCron, nil, false, now)
	} else {
		body = queuePayload(f,
			queueMessage{id: newGUID(), text: input, dequeueCount: 1, inserted: &now, expires: &now,
				nextVisible: &now}, now)
	}

	h.background.Go(func() {
		defer leave()
		_, _ = caller{i}.invokeFunction(newGUID(), f, body) // invokeFunction logs the error
	})

	return true
}
