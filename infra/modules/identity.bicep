// The identity that the app, the host's storage and Key Vault references sign in by. It is user-assigned, so
// its roles are in force before the app starts for the first time, and it outlives the app.

@description('Name of the identity.')
param name string

@description('Region of the identity.')
param location string

@description('Tags of the identity.')
param tags object

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: name
  location: location
  tags: tags
}

@description('Resource id of the identity.')
output id string = identity.id

@description('Client id, which the settings of the app name.')
output clientId string = identity.properties.clientId

@description('Object id, which role assignments name.')
output principalId string = identity.properties.principalId
