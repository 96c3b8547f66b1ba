// Package upstream has the named upstreams of the settings. It verifies which upstream sent a request, and
// enforces the upstream's contracts, rate and daily quota.
//
// A request shows its upstream by a key, or by the upstream's name and a signature over the body: GitHub's
// X-Hub-Signature-256, or Standard Webhooks (https://www.standardwebhooks.com). A comparison of a key or a signature
// takes the same time, however many of its bytes are right.
//
// The rate is a token bucket in the memory of each process. The daily quota is valid for all processes
// together. A process reserves some messages of the day at a time by a conditional write of the upstream's row,
// and then takes them from memory. If a process dies, the messages that it has reserved and not taken are lost
// for that day. So an upstream may get less than its quota. It never gets more, unless the clock of a process is
// wrong by more than a day.
package upstream
