package door

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Protection has what protects an address.
type Protection struct {
	HasKeys, HasTLS bool
	IsBehindProxy   bool // a proxy in front ends TLS, and can reach the address from anywhere
}

// CheckAddress returns an error if a process must not listen on an address with this protection.
// Only on a loopback address, and without a proxy in front, requests need no key.
func CheckAddress(address string, p Protection) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf(
			"--listen is %q, and must be an address with a port, such as 127.0.0.1:7071",
			address,
		)
	}

	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("--listen is %q, and its port must be a number up to 65535", address)
	}

	const newKey = "weir key new makes a key; put its hash under keys: in weir.yaml"
	switch {
	case p.IsBehindProxy && !p.HasKeys:
		return errors.New(
			"--behind-proxy needs keys, because the proxy passes on requests of others: " + newKey,
		)

	case IsLoopback(address) || p.IsBehindProxy:
		return nil
	case !p.HasKeys:
		return fmt.Errorf(
			"--listen %s can be reached from other machines, so it needs keys: %s",
			address,
			newKey,
		)

	case !p.HasTLS:
		return fmt.Errorf(
			"--listen %s can be reached from other machines, and keys and messages would cross the "+
				"network unencrypted: set tls: in weir.yaml, or --behind-proxy if a proxy ends TLS",
			address,
		)
	}

	return nil
}

// IsLoopback reports whether only this machine can reach an address.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
