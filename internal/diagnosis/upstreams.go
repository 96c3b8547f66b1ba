package diagnosis

import "strings"

// checkUpstreams returns a finding that lists the upstreams of the settings.
func (s *System) checkUpstreams() Finding {
	var all []string
	for _, u := range s.Settings.Upstreams {
		all = append(all, u.DescribeLimits())
	}
	return Finding{Name: "upstreams", Detail: strings.Join(all, "; ")}
}
