// Package limiter spreads the requests of all processes to one CMS over time, so that the CMS gets
// no more of them in any period than the setting delivery.rate allows.
//
// # Slots
//
// A slot is a moment at which one request may begin. All slots of a CMS are in one sequence, in the
// time of storage. One row has the first slot that no process has reserved. A process reserves the
// next slots by a write of that row, on condition that no other process has written it since
// (reserve.go). So no slot has two processes, whatever happens to them.
//
// Slots are (Per + jitter) / Count apart. So Count+1 slots in a row take longer than Per, by the
// jitter. The CMS gets Count+1 requests within Per only if their delays differ by more than the
// jitter.
//
// A request begins within lateness after its slot, or takes a later slot. Slots that no request
// takes are lost: of a process that dies, has nothing to send, or is slow. They are never given
// again, so an early request cannot come of them.
//
// # Time
//
// A process learns the difference between its clock and that of storage from the rows that it has
// written: storage wrote each of them between the start and the end of its call (clock.go).
//
// # Demand
//
// A Place is the place of a lane in the queue for slots. The lane asks for the slots of an attempt,
// and begins the attempt shortly before the first of them. An attempt of several requests begins
// only if the process has a slot for each; its later requests come before the first requests of
// other attempts. Requests outside an attempt, such as those of a sign-in, ask when they begin.
//
// A process reserves for the requests that wait. If requests used nearly all slots of the last
// reservation, it also reserves ahead, up to the slots of a second (appetite.go).
//
// While requests wait or slots are left, a process makes at most two transactions a second, beside
// a few at the start. Otherwise it makes none.
//
// # Answers
//
// The answers of the CMS change the pace of all processes (pace.go): a Retry-After, or a RateLimit
// header without a request left, moves the first free slot; 429 makes the slots wider apart. Slots
// come back to the rate of the settings step by step, and never closer.
package limiter
