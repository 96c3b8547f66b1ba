// Key Vault for what the CMS and receivers of notifications ask for. The template makes no secret: a value in a
// template would stand in the history of deployments.

@description('Name of the vault: 3 to 24 characters.')
@minLength(3)
@maxLength(24)
param name string

@description('Region of the vault.')
param location string

@description('Tags of the vault.')
param tags object

@description('True if the vault is reached through a private endpoint only.')
param isPrivate bool

@description('Object id of the identity of the app, which reads secrets.')
param appPrincipalId string

@description('Object id of the person or pipeline that sets secrets; empty for none.')
param deployerPrincipalId string

@description('Kind of the deployer.')
@allowed(['User', 'Group', 'ServicePrincipal'])
param deployerPrincipalType string

resource vault 'Microsoft.KeyVault/vaults@2026-02-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    tenantId: tenant().tenantId
    sku: { family: 'A', name: 'standard' }
    enableRbacAuthorization: true
    enablePurgeProtection: true
    enableSoftDelete: true
    publicNetworkAccess: isPrivate ? 'Disabled' : 'Enabled'
    networkAcls: {
      bypass: 'AzureServices'
      defaultAction: isPrivate ? 'Deny' : 'Allow'
    }
  }
}

var keyVaultSecretsUser = '4633458b-17de-408a-b874-0445c86b69e6'
var keyVaultSecretsOfficer = 'b86a8fe4-44ce-4948-aee5-eccb2c155cd7'

resource reader 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(vault.id, appPrincipalId, keyVaultSecretsUser)
  scope: vault
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', keyVaultSecretsUser)
  }
}

resource officer 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(deployerPrincipalId)) {
  name: guid(vault.id, deployerPrincipalId, keyVaultSecretsOfficer)
  scope: vault
  properties: {
    principalId: deployerPrincipalId
    principalType: deployerPrincipalType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', keyVaultSecretsOfficer)
  }
}

@description('Resource id of the vault.')
output id string = vault.id

@description('Name of the vault.')
output name string = vault.name
