package notify

// Unexported functions for the tests of this package.
var (
	Public       = checkPublic
	NewTransport = newTransport
)
