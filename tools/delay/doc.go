// Package delay is a reverse proxy in front of Azurite's three services. With the proxy, Azurite
// behaves like a storage account on a network. The proxy delays answers, and answers some requests
// with 503 ServerBusy. Tests can also let requests hang (see Proxy.Hang).
//
// Azurite answers in one to two milliseconds. A storage account mostly answers in five to fifteen
// milliseconds, and sometimes much later. The proxy adds such delays:
//
//	p, err := delay.Start(ctx, delay.Far(azurite.ConnectionString()))
//	defer p.Close()
//	use(p.ConnectionString(azurite.ConnectionString()))
//
// The proxy changes no method, path, query, header or body of a request. So signatures stay valid.
// The Host header also stays, so URLs in answers lead through the proxy again. The proxy keeps
// connections open on both sides.
//
// The proxy numbers the requests. Config.Seed and the number of a request decide its delay, and
// whether it is refused. So the same requests in the same order get the same delays. The delay
// comes on top of Azurite's own time. The proxy itself takes about half a millisecond, and Go's
// timer can be late by one millisecond.
package delay
