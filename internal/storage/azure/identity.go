package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

// Identity names a storage account, and the Azure identity with which the process signs in instead
// of a key. The identity needs three roles: "Storage Blob Data Contributor", "Storage Queue Data
// Contributor" and "Storage Table Data Contributor".
type Identity struct {
	// Account is the account's name. A service whose URL is empty has the account's address in
	// Azure's public cloud.
	Account                     string
	BlobURL, QueueURL, TableURL string // must be https
	// If Managed is set, the process signs in only with a managed identity. Otherwise it uses the
	// first available one of these: environment, workload identity, managed identity, a developer's
	// login.
	Managed bool
	// of a user-assigned identity; empty = system-assigned; used only if Managed is set
	ClientID string
}

// IsZero reports whether no field is set.
func (i Identity) IsZero() bool { return i == Identity{} }

func (i Identity) serviceURL(name, given string) (string, error) {
	if given == "" && i.Account == "" {
		return "", fmt.Errorf("the address of the %s service is missing", name)
	}

	address := cmp.Or(given, "https://"+i.Account+"."+name+".core.windows.net/")
	if u, err := url.Parse(address); err != nil || u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf(
			"the address of the %s service must be absolute and https: a token must not be sent in the clear", name)
	}

	return address, nil
}

// newCredential returns a credential, and sends no request.
func (i Identity) newCredential() (azcore.TokenCredential, error) {
	if !i.Managed {
		return azidentity.NewDefaultAzureCredential(nil)
	}

	var options azidentity.ManagedIdentityCredentialOptions
	if i.ClientID != "" {
		options.ID = azidentity.ClientID(i.ClientID)
	}

	return azidentity.NewManagedIdentityCredential(&options)
}

// NewTokenSource returns a function that gets a token of the process's identity for a scope of
// another Azure service. The function returns the token and the time at which the token expires.
func (i Identity) NewTokenSource() func(ctx context.Context, scope string) (string,
	time.Time, error) {
	newCredential := sync.OnceValues(i.newCredential)
	return func(ctx context.Context, scope string) (string, time.Time, error) {
		credential, err := newCredential()
		if err != nil {
			return "", time.Time{}, err
		}
		token, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
		return token.Token, token.ExpiresOn, err
	}
}

func clientsByIdentity(c Config) (clients, error) {
	i := c.Identity
	tableURL, err1 := i.serviceURL("table", i.TableURL)
	queueURL, err2 := i.serviceURL("queue", i.QueueURL)
	blobURL, err3 := i.serviceURL("blob", i.BlobURL)
	credential, err4 := i.newCredential()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return clients{}, err
	}

	table, err1 := aztables.NewServiceClient(tableURL, credential,
		&aztables.ClientOptions{ClientOptions: clientOptions(c, "table")})
	queue, err2 := azqueue.NewServiceClient(queueURL, credential,
		&azqueue.ClientOptions{ClientOptions: clientOptions(c, "queue")})
	blobs, err3 := service.NewClient(blobURL, credential,
		&service.ClientOptions{ClientOptions: clientOptions(c, "blob")})

	return clients{table, queue, blobs}, errors.Join(err1, err2, err3)
}
