package app

import "strings"

// diagnoseUpstreams returns a finding that lists the upstreams of the settings.
func (d diagnosis) diagnoseUpstreams() Finding {
	var all []string
	for _, u := range d.settings.Upstreams {
		all = append(all, u.DescribeLimits())
	}
	return Finding{Name: "upstreams", Detail: strings.Join(all, "; ")}
}
