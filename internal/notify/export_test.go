package notify

// For the tests of this package.
var (
	Public       = checkPublic
	NewTransport = newTransport
)
