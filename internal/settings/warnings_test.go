package settings

import (
	"strings"
	"testing"

	"weir/internal/contract"
)

func TestWarnings_NameContractsWithoutVersionMax(t *testing.T) {
	t.Parallel()
	s := Settings{}
	for _, d := range []contract.Definition{{Name: "plain"},
		{Name: "bounded", Supersede: true, VersionMax: "+24h"}, {Name: "open", Supersede: true}} {
		s.Contracts = append(s.Contracts, Contract{Definition: d})
	}

	if got := s.ListWarnings(); len(got) != 1 ||
		!strings.Contains(got[0], "contract open supersedes") {
		t.Errorf("got %q, want a warning about the contract open alone", got)
	}
}

func TestWarnings_NameFilesWithoutAnUpstream(t *testing.T) {
	t.Parallel()
	upstreams := []Upstream{{Name: "a"}}
	for name, c := range map[string]struct {
		upstreams []Upstream
		files     *Files
		isWarned  bool
	}{
		"no files": {upstreams, nil, false}, "no upstreams": {nil, &Files{}, false},
		"default": {upstreams, &Files{}, true},
		"allow":   {upstreams, &Files{Others: "allow"}, true},
		"refuse":  {upstreams, &Files{Others: "refuse"}, false},
	} {
		s := Settings{Upstreams: c.upstreams}
		s.Intake.Files = c.files
		if got := strings.Join(s.ListWarnings(), "\n"); strings.Contains(got, "others: refuse") !=
			c.isWarned {
			t.Errorf("%s: got %q, want a warning: %v", name, got, c.isWarned)
		}
	}
}

func TestWarnings_NameClearText(t *testing.T) {
	t.Parallel()
	const account = "AccountName=a;AccountKey=s3cret"
	for name, c := range map[string]struct{ url, connection, want string }{
		"AllEncrypted": {"https://cms.example/{key}",
			"DefaultEndpointsProtocol=https;" + account, ""},
		"NoProtocol":  {"https://cms.example/", account, ""},
		"Development": {"http://127.0.0.1:7072/{key}", "UseDevelopmentStorage=true", ""},
		"Loopback": {"http://localhost/", "DefaultEndpointsProtocol=http;" + account +
			";TableEndpoint=http://127.0.0.1:10002/a", ""},
		"CMS":          {"http://cms.example/{key}?code=s3cret", account, "delivery.url"},
		"CMSByAddress": {"http://10.0.0.7/", account, "delivery.url"},
		"Storage": {"https://cms.example/", "DefaultEndpointsProtocol=http;" + account,
			"AzureWebJobsStorage"},
		"StorageEndpoint": {"https://cms.example/",
			account + ";QueueEndpoint=http://a.queue.core.windows.net", "AzureWebJobsStorage"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Settings{Storage: Secret(c.connection), Delivery: Delivery{URL: c.url}}
			got := strings.Join(s.ListWarnings(), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) ||
				strings.Contains(got, "s3cret") {
				t.Errorf("got %q, want it to name %q, and no secret", got, c.want)
			}
		})
	}
}
