// The storage account: Weir's table, queues and containers, the host's own container, and the package of a deployment.
// No key opens it (allowSharedKeyAccess is false): whoever reads it has a role.

@description('Name of the storage account: 3 to 24 of a-z and 0-9.')
@minLength(3)
@maxLength(24)
param name string

@description('Region of the account.')
param location string

@description('Tags of the account.')
param tags object

@description('Redundancy. ZRS outlives a zone; LRS is cheaper and in every region; GZRS and GRS copy to the paired region.')
@allowed(['Standard_LRS', 'Standard_ZRS', 'Standard_GRS', 'Standard_GZRS', 'Standard_RAGRS', 'Standard_RAGZRS'])
param sku string

@description('The app setting WEIR_PREFIX, which begins the names of table, queues and containers.')
@minLength(3)
@maxLength(40)
param prefix string

@description('Name of the container that holds the package of the app.')
param packageContainer string

@description('Days for which a removed body or container can be brought back; 0 switches soft delete off. An erased message is gone for good only after these days.')
@minValue(0)
@maxValue(365)
param softDeleteDays int

@description('True if the account is reached through private endpoints only.')
param isPrivate bool

@description('True if a lock keeps the account from being deleted.')
param isLocked bool

@description('Object id of the identity of the app.')
param appPrincipalId string

@description('Object id of the person or pipeline that publishes packages and runs commands on storage; empty for none.')
param deployerPrincipalId string

@description('Kind of the deployer.')
@allowed(['User', 'Group', 'ServicePrincipal'])
param deployerPrincipalType string

resource account 'Microsoft.Storage/storageAccounts@2026-04-01' = {
  name: name
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: { name: sku }
  properties: {
    accessTier: 'Hot'
    allowBlobPublicAccess: false
    allowCrossTenantReplication: false
    allowSharedKeyAccess: false
    defaultToOAuthAuthentication: true
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: isPrivate ? 'Disabled' : 'Enabled'
    networkAcls: {
      bypass: 'AzureServices'
      defaultAction: isPrivate ? 'Deny' : 'Allow'
    }
  }
}

// The property days takes no 0.
var softDelete = softDeleteDays > 0 ? { enabled: true, days: max(softDeleteDays, 1) } : { enabled: false }

// No versioning: Weir writes a body once and removes it, so versions would only outlive an erasure. No restore to a
// point in time either: it covers blobs and not the table, and half a restore is worse than none.
resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2026-04-01' = {
  parent: account
  name: 'default'
  properties: {
    isVersioningEnabled: false
    deleteRetentionPolicy: softDelete
    containerDeleteRetentionPolicy: softDelete
  }
}

resource containers 'Microsoft.Storage/storageAccounts/blobServices/containers@2026-04-01' = [
  for container in [packageContainer, '${prefix}-bodies', '${prefix}-leases']: {
    parent: blobs
    name: container
    properties: { publicAccess: 'None' }
  }
]

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2026-04-01' = {
  parent: account
  name: 'default'
}

resource queues 'Microsoft.Storage/storageAccounts/queueServices/queues@2026-04-01' = [
  for queue in ['${prefix}-tickets', '${prefix}-tickets-poison', '${prefix}-inbox-events']: {
    parent: queueService
    name: queue
  }
]

resource tableService 'Microsoft.Storage/storageAccounts/tableServices@2026-04-01' = {
  parent: account
  name: 'default'
}

resource lanes 'Microsoft.Storage/storageAccounts/tableServices/tables@2026-04-01' = {
  parent: tableService
  name: '${prefix}lanes'
}

resource lock 'Microsoft.Authorization/locks@2020-05-01' = if (isLocked) {
  name: '${name}-keep'
  scope: account
  properties: {
    level: 'CanNotDelete'
    notes: 'Holds messages that were answered 202.'
  }
}

var roles = {
  // The host keeps its keys and locks in a container that it makes: it asks for Owner.
  storageBlobDataOwner: 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b'
  storageQueueDataContributor: '974c5e8b-45b9-4653-ba55-5f855dd0fb88'
  storageTableDataContributor: '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3'
}

resource appRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in items(roles): {
    name: guid(account.id, appPrincipalId, role.value)
    scope: account
    properties: {
      principalId: appPrincipalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role.value)
    }
  }
]

// The deployer uploads packages, and runs handler check and handler lanes by az login.
var deployerRoles = {
  storageBlobDataContributor: 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'
  storageQueueDataContributor: '974c5e8b-45b9-4653-ba55-5f855dd0fb88'
  storageTableDataContributor: '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3'
}

resource deployerAssignments 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in items(deployerRoles): if (!empty(deployerPrincipalId)) {
    name: guid(account.id, deployerPrincipalId, role.value)
    scope: account
    properties: {
      principalId: deployerPrincipalId
      principalType: deployerPrincipalType
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role.value)
    }
  }
]

@description('Resource id of the account.')
output id string = account.id

@description('Name of the account.')
output name string = account.name

@description('Address of the container that holds the package.')
output packageContainerUrl string = '${account.properties.primaryEndpoints.blob}${packageContainer}'
