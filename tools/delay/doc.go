// Package delay puts a storage account's distance in front of Azurite: a reverse proxy for its
// three services that answers later, now and then with 503 ServerBusy, and not at all while a
// test lets it hang.
//
// Azurite answers in one to two milliseconds, a storage account in five to fifteen, with a tail.
// Only there a program shows how it behaves with storage far away:
//
//	p, err := delay.Start(ctx, delay.Far(azurite.ConnectionString()))
//	defer p.Close()
//	use(p.ConnectionString(azurite.ConnectionString()))
//
// Requests pass as they are: method, path, query, headers (Host among them) and body, so that
// their signatures hold and the URLs in answers lead through the proxy again. Connections are
// kept on both sides. The seed and a request's number decide its delay and refusal, so that a
// run of equal requests repeats, and no lock is shared between requests. The delay is added to
// the time that Azurite takes; the hop itself adds half a millisecond, and the timer, which is
// one of Go's, up to one.
package delay
