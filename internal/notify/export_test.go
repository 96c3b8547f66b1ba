package notify

// For the tests of this package.
var (
	Public       = public
	NewTransport = newTransport
)
