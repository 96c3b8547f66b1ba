package azure

import (
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// Missing reports whether err means that the table, queue or container does not exist.
// Account.Ensure creates all of them.
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
