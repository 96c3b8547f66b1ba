package settings

import (
	"errors"
	"fmt"
	"strings"

	"weir/internal/storage/azure"
)

// The variables that select the storage account. The names are those of a Functions host, so the
// host and Weir read the same variables.
const (
	StorageVariable    = "AzureWebJobsStorage"
	accountVariable    = StorageVariable + "__accountName"
	credentialVariable = StorageVariable + "__credential"
	clientIDVariable   = StorageVariable + "__clientId"
)

// managedIdentity is the only value that AzureWebJobsStorage__credential can have. The variable can
// also be empty.
const managedIdentity = "managedidentity"

// storageProblem is a problem of the settings of the storage account. weir check shows it with
// storage, and not a second time with the other settings.
type storageProblem struct{ error }

func (p storageProblem) Unwrap() error { return p.error }

// SplitStorageProblems returns the problems of the storage account's settings, and the other
// problems.
func SplitStorageProblems(err error) (ofStorage, others error) {
	if joined, isJoined := err.(interface{ Unwrap() []error }); isJoined {
		for _, e := range joined.Unwrap() {
			s, o := SplitStorageProblems(e)
			ofStorage, others = errors.Join(ofStorage, s), errors.Join(others, o)
		}
		return ofStorage, others
	}

	if p := (storageProblem{}); errors.As(err, &p) {
		return err, nil
	}

	return nil, err
}

// DataVariable names the folder that stores everything, in place of a storage account. Under a
// Functions host it has no effect, because several instances share the storage.
const DataVariable = "WEIR_DATA"

// ReadStorage reads the folder, or the connection string or the identity of the storage account.
func (s *Settings) ReadStorage(env func(string) string) error {
	if s.Data = env(DataVariable); s.Data != "" && !IsHosted(env) {
		return nil
	}

	s.Data = ""
	s.Storage = Secret(env(StorageVariable))
	i := azure.Identity{Account: env(accountVariable), BlobURL: env(StorageVariable + "__blobServiceUri"),
		QueueURL: env(StorageVariable + "__queueServiceUri"),
		TableURL: env(StorageVariable + "__tableServiceUri")}

	switch {
	case s.Storage != "":
		return nil
	case i.IsZero():
		return errors.New(StorageVariable +
			" is not set: it is the connection string of the storage account; or set " +
			accountVariable + " to sign in by identity")
	}

	i.Managed, i.ClientID = strings.EqualFold(env(credentialVariable), managedIdentity),
		env(clientIDVariable)
	s.Identity = i

	switch credential := env(credentialVariable); {
	case credential != "" && !i.Managed:
		return fmt.Errorf("%s is %q, and must be %s or empty", credentialVariable, credential,
			managedIdentity)
	case i.ClientID != "" && !i.Managed:
		return fmt.Errorf("%s is set, so %s must be %s", clientIDVariable, credentialVariable,
			managedIdentity)
	}

	return nil
}

// HostPortVariable is the variable with the port on which a custom handler must listen. Only a
// Functions host sets the variable.
const HostPortVariable = "FUNCTIONS_CUSTOMHANDLER_PORT"

// IsHosted reports whether a Functions host has started this process.
func IsHosted(env func(string) string) bool { return env(HostPortVariable) != "" }
