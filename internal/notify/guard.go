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

// errPrivate is the error of an address that is not public.
var errPrivate = errors.New("not a public address")

// privateNetworks are the networks that an address given from outside must not lead into. Otherwise
// any upstream could make Weir send requests to internal systems. Of IPv6 only 2000::/3
// is public; no other range that translates or embeds addresses is.
var privateNetworks = parsePrefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.88.99.0/24",
	"192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32", // Azure's platform answers there, inside every virtual network
	"::/3", "4000::/2", "8000::/1", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

func parsePrefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// checkPublic returns an error unless address, an IP address with a port, is public. IPv4 addresses
// written as IPv6 are checked as IPv4.
func checkPublic(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q", errPrivate, address)
	}
	ip := at.Addr().Unmap().WithZone("")
	for _, p := range privateNetworks {
		if p.Contains(ip) {
			return fmt.Errorf("%w: %s", errPrivate, ip)
		}
	}
	return nil
}

// requestTimeout bounds one request, from dialling to the end of the response.
const requestTimeout = 10 * time.Second

// newTransport returns the transport to receivers. Private addresses are refused when the
// connection is dialled, so a name that resolves differently later cannot evade the check. A proxy
// of the environment is not used, because it would resolve the name itself.
func newTransport(allowPrivate bool) *http.Transport {
	dialer := &net.Dialer{Timeout: requestTimeout, KeepAlive: 30 * time.Second}
	if !allowPrivate {
		dialer.Control = func(_, address string, _ syscall.RawConn) error { return checkPublic(address) }
	}
	return &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: maxPerHost,
		IdleConnTimeout:     30 * time.Second,
		TLSHandshakeTimeout: requestTimeout, ResponseHeaderTimeout: requestTimeout, MaxResponseHeaderBytes: 16 << 10,
		DisableCompression: true,
	}
}
