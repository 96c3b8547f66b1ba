package settings

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

// ListWarnings returns warnings about weak settings, for weir check. No warning contains a secret.
func (s *Settings) ListWarnings() []string {
	warnings := s.warnCallbacks()
	if IsClearText(s.Delivery.URL) {
		warnings = append(warnings,
			"delivery.url is http: messages, and the secrets of delivery.url and "+
				"delivery.headers, cross the network unencrypted; use https")
	}

	if hasClearTextStorage(string(s.Storage)) {
		warnings = append(warnings,
			"AzureWebJobsStorage names http addresses: messages cross the network "+
				"unencrypted; use DefaultEndpointsProtocol=https")
	}

	if f := s.Intake.Files; f != nil && len(s.Upstreams) > 0 && f.Others != RefuseOthers {
		warnings = append(warnings,
			"intake.files takes files outside of its folders, and they have no upstream: an "+
				"upstream that can write to the container evades its contracts and limits by writing beside its folder; "+
				"write others: refuse")
	}

	for _, c := range s.Contracts {
		if c.Supersede && c.VersionMax == "" {
			warnings = append(warnings,
				fmt.Sprintf("contract %s supersedes by version and has no versionMax: after "+
					"one version that is too high by mistake, Weir writes no correct version of that key", c.Name))
		}
	}

	return warnings
}

// IsClearText reports whether requests to an address cross the network without encryption. Requests
// to a loopback address do not cross the network.
func IsClearText(address string) bool {
	address, _, _ = strings.Cut(address, "{") // only the path and the query can have placeholders
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "http" && u.Host != "" && !isLoopback(u.Hostname())
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// hasClearTextStorage reports whether requests to the storage of a connection string cross the
// network without encryption.
func hasClearTextStorage(connection string) bool {
	protocol, account, explicit := "", "", 0
	for part := range strings.SplitSeq(connection, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case strings.EqualFold(name, "DefaultEndpointsProtocol"):
			protocol = value
		case strings.EqualFold(name, "AccountName"):
			account = value
		case strings.HasSuffix(strings.ToLower(name), "endpoint"):
			explicit++
			if IsClearText(value) {
				return true
			}
		}
	}

	return strings.EqualFold(protocol, "http") && account != "" && explicit == 0
}
