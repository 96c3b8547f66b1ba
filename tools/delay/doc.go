// Package delay is a reverse proxy in front of Azurite's three services that behaves like a storage account far away:
// it answers later, answers some requests with 503 ServerBusy, and gives no answer while a test lets it hang.
//
// Azurite answers in one to two milliseconds, a storage account mostly in five to fifteen, and sometimes much later.
// Behind the proxy a program shows how it behaves with such an account:
//
//	p, err := delay.Start(ctx, delay.Far(azurite.ConnectionString()))
//	defer p.Close()
//	use(p.ConnectionString(azurite.ConnectionString()))
//
// The proxy changes nothing in a request: method, path, query, headers (Host among them) and body stay. So signatures
// stay valid, and URLs in answers lead through the proxy again. It keeps connections on both sides. The seed and the
// number of a request decide its delay and its refusal. So the same requests in the same order have the same delays,
// and requests share no lock. The delay is added to Azurite's own time. The hop through the proxy adds half a
// millisecond, and Go's timer up to one.
package delay
