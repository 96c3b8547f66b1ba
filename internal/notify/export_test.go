package notify

// These variables make unexported functions available to the tests of this package.
var (
	Public         = checkPublic
	NewTransport   = newTransport
	WithoutAddress = withoutAddress
)
