package azure

import (
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// Missing reports whether an error means that the table, queue or container itself does not exist: Ensure
// was never called for this prefix, or what it created was removed.
func Missing(err error) bool {
	var r *azcore.ResponseError
	if !errors.As(err, &r) {
		return false
	}
	switch r.ErrorCode {
	case "TableNotFound", "QueueNotFound", "ContainerNotFound":
		return true
	}
	return false
}
