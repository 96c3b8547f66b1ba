package notify

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// errPrivate is the refusal of an address that is not a public one.
var errPrivate = errors.New("not a public address")

// closed are the networks that an address given from outside must not lead into: whoever
// sends a message could otherwise have us speak to our own neighbours. Of IPv6 nothing is
// public outside 2000::/3, whatever translates or embeds addresses there.
var closed = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
	"192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32", // of Azure: its platform answers there, inside any virtual network
	"::/3", "4000::/2", "8000::/1", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// public refuses an address and port unless the address is a public one. IPv4 addresses
// written as IPv6 are taken for what they are.
func public(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q", errPrivate, address)
	}
	ip := at.Addr().Unmap().WithZone("")
	for _, p := range closed {
		if p.Contains(ip) {
			return fmt.Errorf("%w: %s", errPrivate, ip)
		}
	}
	return nil
}

// requestTimeout bounds one request, from the dial to the end of the answer.
const requestTimeout = 10 * time.Second

// newTransport makes the way to receivers. Where private addresses are refused, that is
// done at the very address that is dialled, whatever a name resolved to before. The
// environment's proxy is not asked: it would do the resolving.
func newTransport(allowPrivate bool) *http.Transport {
	dialer := &net.Dialer{Timeout: requestTimeout, KeepAlive: 30 * time.Second}
	if !allowPrivate {
		dialer.Control = func(_, address string, _ syscall.RawConn) error { return public(address) }
	}
	return &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: perHost, IdleConnTimeout: 30 * time.Second,
		TLSHandshakeTimeout: requestTimeout, ResponseHeaderTimeout: requestTimeout, MaxResponseHeaderBytes: 16 << 10, DisableCompression: true,
	}
}
