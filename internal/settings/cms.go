package settings

import (
	"fmt"

	"weir/internal/contract"
	"weir/internal/signin"
	"weir/internal/steps"
)

// SignIn has the settings of the sign-in to the CMS: one of the ways of package signin, or
// Steps. Send, Cookies and For belong to Steps.
type SignIn struct {
	signin.Settings `yaml:",inline"`
	Steps           steps.Source `yaml:"steps"`
	Send            steps.Source `yaml:"send"` // headers of each request after the sign-in
	// true = each request has the cookies of the sign-in
	Cookies bool         `yaml:"cookies"`
	For     steps.Source `yaml:"for"` // time for which the sign-in is valid
}

// IsSet reports whether the settings have a sign-in to the CMS.
func (s *SignIn) IsSet() bool {
	return s.Settings.IsSet() || s.Steps.IsSet() || s.Send.IsSet() || s.For.IsSet() || s.Cookies
}

// IsRenewable reports whether another sign-in can return a different credential.
func (s *SignIn) IsRenewable() bool {
	return s.Steps.IsSet() || s.OAuth2 != nil || s.JWT != nil || s.Azure != nil
}

// AsksServer reports whether a sign-in sends requests. If so, a successful sign-in shows that a
// server accepts the credential.
func (s *SignIn) AsksServer() bool {
	return s.Steps.IsSet() || s.OAuth2 != nil || s.Azure != nil
}

// ContractDefinitions returns the definitions of the contracts.
func (s *Settings) ContractDefinitions() []contract.Definition {
	var definitions []contract.Definition
	for _, c := range s.Contracts {
		definitions = append(definitions, c.Definition)
	}
	return definitions
}

// ContractsWithSteps returns the steps of the contracts that have some.
func (s *Settings) ContractsWithSteps() []steps.Contract {
	var found []steps.Contract
	for i, c := range s.Contracts {
		if !c.Steps.IsSet() {
			continue
		}
		found = append(found, steps.Contract{Name: c.Name, Key: c.Key,
			Path: fmt.Sprintf("contracts[%d].steps", i), Steps: c.Steps})
	}

	return found
}
