package weir

// AppendResult is the result of one try to append a message, as far as the caller knows.
type AppendResult int

// The results of a try.
const (
	NotAppended    AppendResult = iota // the try certainly stored no message
	Appended                           // the try stored a message
	AppendRepeated                     // an earlier try had stored the message
	// the answer of storage was lost: the try may have stored the message
	AppendUnknown
)
