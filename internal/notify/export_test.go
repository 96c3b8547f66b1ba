package notify

// Public and NewTransport make unexported functions available to the tests of this package.
var (
	Public       = checkPublic
	NewTransport = newTransport
)
