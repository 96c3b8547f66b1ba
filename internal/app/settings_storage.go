package app

import (
	"errors"
	"fmt"
	"strings"

	"weir/internal/storage/azure"
)

// The variables that select the storage account. The names are those of a Functions host, so the
// host and Weir read the same variables.
const (
	storageName    = "AzureWebJobsStorage"
	accountName    = storageName + "__accountName"
	credentialName = storageName + "__credential"
	clientIDName   = storageName + "__clientId"
)

// managedIdentity is the only value that AzureWebJobsStorage__credential can have. The variable can
// also be empty.
const managedIdentity = "managedidentity"

// storageProblem is a problem of the settings of the storage account. weir check shows it with
// storage, and not a second time with the other settings.
type storageProblem struct{ error }

func (p storageProblem) Unwrap() error { return p.error }

// splitStorageProblems returns the problems of the storage account's settings, and the other
// problems.
func splitStorageProblems(err error) (ofStorage, others error) {
	if joined, isJoined := err.(interface{ Unwrap() []error }); isJoined {
		for _, e := range joined.Unwrap() {
			s, o := splitStorageProblems(e)
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

// readStorage reads the folder, or the connection string or the identity of the storage account.
func (s *Settings) readStorage(env func(string) string) error {
	if s.Data = env(DataVariable); s.Data != "" && !IsHosted(env) {
		return nil
	}

	s.Data = ""
	s.Storage = secret(env(storageName))
	i := azure.Identity{Account: env(accountName), BlobURL: env(storageName + "__blobServiceUri"),
		QueueURL: env(storageName + "__queueServiceUri"),
		TableURL: env(storageName + "__tableServiceUri")}

	switch {
	case s.Storage != "":
		return nil
	case i.IsZero():
		return errors.New(storageName +
			" is not set: it is the connection string of the storage account; or set " +
			accountName + " to sign in by identity")
	}

	i.Managed, i.ClientID = strings.EqualFold(env(credentialName), managedIdentity),
		env(clientIDName)
	s.Identity = i

	switch credential := env(credentialName); {
	case credential != "" && !i.Managed:
		return fmt.Errorf("%s is %q, and must be %s or empty", credentialName, credential,
			managedIdentity)
	case i.ClientID != "" && !i.Managed:
		return fmt.Errorf("%s is set, so %s must be %s", clientIDName, credentialName,
			managedIdentity)
	}

	return nil
}
