// Package upstream has the named upstreams of the settings. It verifies which upstream sent a
// request, and limits each upstream to its contracts, rate and daily quota.
//
// A request proves its upstream by a key, or by the upstream's name and a signature over the body:
// GitHub's X-Hub-Signature-256, or Standard Webhooks (https://www.standardwebhooks.com). Keys and
// signatures are compared in constant time.
//
// Each process limits the rate by itself, with a token bucket in memory. All processes share the
// daily quota. By one conditional write of the upstream's row, a process reserves a part of the
// day's quota: the right to admit several messages. It then admits these messages without another
// write. If the process dies, the rest of its reservation is lost for the day, so an upstream can
// get less than its quota. An upstream can get more than its quota only if the clock of a process
// is wrong by more than a day.
package upstream
