// Package upstream has the named upstreams of the settings. It verifies which upstream sent a request, and
// enforces the upstream's contracts, rate and daily quota.
//
// A request names its upstream by a key, or by a signature over its body: GitHub's X-Hub-Signature-256, or Standard
// Webhooks (https://www.standardwebhooks.com). Every comparison of a secret takes the same time for each input.
//
// The rate is a token bucket in the memory of each process. The daily quota is valid for all processes
// together. A process reserves some messages of the day at a time by a conditional write of the upstream's row,
// and then takes them from memory. If a process dies, the messages that it has reserved and not taken are lost
// for that day. So an upstream may get less than its quota, but never more.
package upstream
