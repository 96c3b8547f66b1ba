package notify

// Public and NewTransport are unexported functions, for the tests of this package.
var (
	Public       = checkPublic
	NewTransport = newTransport
)
