// The file drop of docs/files.md: the containers, and Event Grid's events of uploads in a queue that triggers the function
// inbox. Event Grid writes to the queue by an identity of its own, because no key opens the account.

@description('Name of the system topic.')
param name string

@description('Region of the storage account.')
param location string

@description('Tags of the topic.')
param tags object

@description('Name of the storage account.')
param storageName string

@description('The app setting WEIR_PREFIX, which begins the names of containers and queue.')
@minLength(3)
@maxLength(40)
param prefix string

resource account 'Microsoft.Storage/storageAccounts@2026-04-01' existing = {
  name: storageName
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2026-04-01' existing = {
  parent: account
  name: 'default'
}

resource containers 'Microsoft.Storage/storageAccounts/blobServices/containers@2026-04-01' = [
  for container in ['${prefix}-inbox', '${prefix}-accepted', '${prefix}-rejected']: {
    parent: blobs
    name: container
    properties: { publicAccess: 'None' }
  }
]

resource topic 'Microsoft.EventGrid/systemTopics@2025-02-15' = {
  name: name
  location: location
  tags: tags
  identity: { type: 'SystemAssigned' }
  properties: {
    source: account.id
    topicType: 'Microsoft.Storage.StorageAccounts'
  }
}

var storageQueueDataMessageSender = 'c6a89b2d-59bc-44d0-9896-0f6e12d7b80a'

resource senderRole 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(account.id, topic.id, storageQueueDataMessageSender)
  scope: account
  properties: {
    principalId: topic.identity.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', storageQueueDataMessageSender)
  }
}

resource subscription 'Microsoft.EventGrid/systemTopics/eventSubscriptions@2025-02-15' = {
  parent: topic
  name: 'inbox'
  properties: {
    deliveryWithResourceIdentity: {
      identity: { type: 'SystemAssigned' }
      destination: {
        endpointType: 'StorageQueue'
        properties: {
          resourceId: account.id
          queueName: '${prefix}-inbox-events'
          queueMessageTimeToLiveInSeconds: 3600
        }
      }
    }
    eventDeliverySchema: 'EventGridSchema'
    filter: {
      includedEventTypes: ['Microsoft.Storage.BlobCreated', 'Microsoft.Storage.BlobRenamed']
      subjectBeginsWith: '/blobServices/default/containers/${prefix}-inbox/'
    }
  }
  dependsOn: [senderRole, containers]
}
