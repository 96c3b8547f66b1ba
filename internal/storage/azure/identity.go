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

// Identity names an account to which the process signs in with its own identity, without a key. The
// identity needs three roles: "Storage Blob Data Contributor", "Storage Queue Data Contributor" and
// "Storage Table Data Contributor".
type Identity struct {
	// Account is the account's name. If a service's address is empty, it is the account's address in the
	// public cloud.
	Account                     string
	BlobURL, QueueURL, TableURL string // https
	// Managed restricts the sign-in to the managed identity. Otherwise the first of these that is available is
	// used: environment, workload identity, managed identity, a developer's login.
	Managed  bool
	ClientID string // if Managed is set: the user-assigned identity; empty = the system-assigned identity
}

// IsZero reports whether no field is set.
func (i Identity) IsZero() bool { return i == Identity{} }

// serviceURL returns the address of a service.
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

// newCredential returns a credential for the identity. The credential sends nothing before it is used.
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

// NewTokenSource returns a function. The function gets a token of the process's identity for another service, and
// returns it with the time at which it expires.
func (i Identity) NewTokenSource() func(ctx context.Context, scope string) (string, time.Time, error) {
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
