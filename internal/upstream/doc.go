// Package upstream knows the named upstreams of the settings: it verifies which upstream sent a request, and holds each
// to its contracts, its rate and its daily quota.
//
// A request names its upstream by a key, or by a signature over its body: GitHub's X-Hub-Signature-256, or Standard
// Webhooks (https://www.standardwebhooks.com). Every comparison of a secret takes the same time for each input.
//
// The rate is a token bucket in the memory of each process. The daily quota holds over all processes: a process
// reserves some messages of the day at a time by a conditional write of the upstream's row, and then takes them from
// memory. If a process dies, the messages that it had reserved and not taken are lost for that day: an upstream may get
// less than its quota, and never more.
package upstream
