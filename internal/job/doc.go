// Package job runs durable jobs. A job is work whose state is stored, such as a batch or a bulk
// replay. Its package has the stored rows and the steps of the work; this package decides when and
// how often a process works on it.
//
// # The life of a job in a process
//
//	Start ──▶ enter ──▶ lease ──▶ run ──▶ over
//	            ▲         │busy    │failed
//	            └──pause──┴────────┴──▶ left to the next sweep
//
// A process starts a job when it stores the job, and when a sweep finds the stored job unfinished.
// A second Start of a running job does nothing.
//
// One process at a time runs a job, under the lease <kind>-<id>. If another process has the lease,
// that process may have died. So a process that meets a job for the first time tries for a little
// longer than a lease lasts. Later it tries once in each sweep, because by then the lease belongs
// to a process that lives.
//
// A failed run is repeated after a pause of one second, which doubles with each failure. After
// MaxTries failures without progress the process leaves the job to the next sweep. A panic is a
// failed run.
//
// Between two tries the process has neither the lease nor the job's place in this process
// (Job.Enter), so that a job that fails holds up no other job.
//
// # What a job must do
//
//   - Each stored change is conditional, because a lease alone is not enough: a process can stall,
//     and another process can have taken the job over.
//   - Run continues from the stored state.
//   - Run returns when its context ends.
package job
