package notify

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// errPrivate is the error for an address that is not public.
var errPrivate = errors.New("not a public address")

// guardian refuses addresses in networks that are not public. Upstreams choose callback addresses,
// and must not make Weir send requests to internal systems. The library generates its list of
// networks from IANA's registries of special-purpose addresses. For IPv6, the library allows only
// 2000::/3.
var guardian = ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(
	// Azure's platform answers at this address in every virtual network
	netip.MustParsePrefix("168.63.129.16/32")))

// checkPublic returns an error if an address is not public. The address is an IP address with a
// port. An IPv4 address in IPv6 notation counts as an IPv4 address.
func checkPublic(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q", errPrivate, address)
	}

	ip := at.Addr().Unmap().WithZone("")
	if guardian.SafeAddr(ip) != nil {
		return fmt.Errorf("%w: %s", errPrivate, ip)
	}

	return nil
}

// requestTimeout bounds one request, from dialling to the end of the response.
const requestTimeout = 10 * time.Second

// newTransport returns the transport to callback addresses and receivers of events. If allowPrivate
// is false, the transport checks the IP address of each connection, and refuses an address that is
// not public. A check before the connection would not be enough: the host name can resolve to
// another address when the transport connects. The transport uses no proxy, because a proxy would
// resolve the host name itself.
func newTransport(allowPrivate bool) *http.Transport {
	dialer := &net.Dialer{Timeout: requestTimeout, KeepAlive: 30 * time.Second}
	if !allowPrivate {
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			return checkPublic(address)
		}
	}

	return &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: maxPerHost,
		IdleConnTimeout:     30 * time.Second,
		TLSHandshakeTimeout: requestTimeout, ResponseHeaderTimeout: requestTimeout,
		MaxResponseHeaderBytes: 16 << 10,
		DisableCompression:     true,
	}
}
