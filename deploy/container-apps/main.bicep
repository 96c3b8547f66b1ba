// Weir on Azure Container Apps: the image of the Dockerfile, one replica at least, scaled by HTTP and by tickets.
//
//   az deployment group create -g <group> -f deploy/container-apps/main.bicep -p image=<registry>/weir:<tag> \
//     registryName=<registry of this group> cmsUrl=https://cms.example/api/content
targetScope = 'resourceGroup'

@description('Begins the names of all resources: 2 to 20 of a-z, 0-9 and hyphens.')
@minLength(2)
@maxLength(20)
param name string = 'weir'

@description('Region of all resources.')
param location string = resourceGroup().location

@description('Tags of all resources.')
param tags object = {}

@description('Image, best by digest: <registry>.azurecr.io/weir@sha256:….')
param image string

@description('Name of the container registry in this resource group.')
param registryName string

@description('The app setting WEIR_PREFIX: 3 to 40 of a-z and 0-9, a letter first.')
@minLength(3)
@maxLength(40)
param prefix string = 'weir'

@description('Address that messages are written to: WEIR_CMS_URL of weir.yaml.')
param cmsUrl string

@description('Further environment variables, by name.')
param settings object = {}

@description('Bound on the replicas. Replicas above the number of lanes accept messages and deliver none.')
@minValue(1)
@maxValue(300)
param maximumReplicas int = 4

@description('Redundancy of the storage account.')
@allowed(['Standard_LRS', 'Standard_ZRS', 'Standard_GRS', 'Standard_GZRS', 'Standard_RAGRS', 'Standard_RAGZRS'])
param storageSku string = 'Standard_ZRS'

@description('Days for which removed bodies can be brought back.')
@minValue(0)
@maxValue(365)
param softDeleteDays int = 7

@description('Mail addresses that alerts go to.')
param alertMails array = []

@description('Object id of the person or pipeline that runs commands on storage; empty for none.')
param deployerPrincipalId string = ''

var token = toLower(uniqueString(resourceGroup().id, name))

module identity '../../infra/modules/identity.bicep' = {
  name: 'identity'
  params: { name: 'id-${name}-${token}', location: location, tags: tags }
}

module storage '../../infra/modules/storage.bicep' = {
  name: 'storage'
  params: {
    name: take('st${token}', 24)
    location: location
    tags: tags
    sku: storageSku
    prefix: prefix
    packageContainer: 'app-package'
    softDeleteDays: softDeleteDays
    isPrivate: false
    isLocked: false
    appPrincipalId: identity.outputs.principalId
    deployerPrincipalId: deployerPrincipalId
    deployerPrincipalType: 'User'
  }
}

module monitoring '../../infra/modules/monitoring.bicep' = {
  name: 'monitoring'
  params: {
    name: 'appi-${name}-${token}'
    workspaceName: 'log-${name}-${token}'
    actionGroupName: 'ag-${name}'
    location: location
    tags: tags
    retentionDays: 30
    dailyCapGb: 2
    alertMails: alertMails
    alertWebhook: ''
    appPrincipalId: identity.outputs.principalId
  }
}

resource registry 'Microsoft.ContainerRegistry/registries@2025-11-01' existing = {
  name: registryName
}

// The name of an assignment must be known at the start, so it names the identity and not its object id.
var identityName = 'id-${name}-${token}'
var acrPull = '7f951dda-4ed3-4680-a7ca-43fe172d538d'

resource pull 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(registry.id, identityName, acrPull)
  scope: registry
  properties: {
    principalId: identity.outputs.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', acrPull)
  }
}

resource component 'Microsoft.Insights/components@2020-02-02' existing = {
  name: 'appi-${name}-${token}'
}

resource environment 'Microsoft.App/managedEnvironments@2026-01-01' = {
  name: 'cae-${name}-${token}'
  location: location
  tags: tags
  properties: {
    // Logs go to Application Insights; the container's own console is seen by az containerapp logs.
    appLogsConfiguration: { destination: 'none' }
  }
}

var extraSettings = [for setting in items(settings): { name: setting.key, value: setting.value }]

resource app 'Microsoft.App/containerApps@2026-01-01' = {
  name: 'ca-${name}'
  location: location
  tags: tags
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: { '${resourceId('Microsoft.ManagedIdentity/userAssignedIdentities', identityName)}': {} }
  }
  properties: {
    environmentId: environment.id
    configuration: {
      activeRevisionsMode: 'Single'
      ingress: { external: true, targetPort: 8080, transport: 'auto', allowInsecure: false }
      registries: [{ server: registry.properties.loginServer, identity: identity.outputs.id }]
    }
    template: {
      terminationGracePeriodSeconds: 60
      containers: [
        {
          name: 'weir'
          image: image
          resources: { cpu: json('0.5'), memory: '1Gi' }
          env: concat(
            [
              { name: 'AzureWebJobsStorage__accountName', value: storage.outputs.name }
              { name: 'AzureWebJobsStorage__credential', value: 'managedidentity' }
              { name: 'AzureWebJobsStorage__clientId', value: identity.outputs.clientId }
              { name: 'APPLICATIONINSIGHTS_CONNECTION_STRING', value: component.properties.ConnectionString }
              {
                name: 'APPLICATIONINSIGHTS_AUTHENTICATION_STRING'
                value: 'ClientId=${identity.outputs.clientId};Authorization=AAD'
              }
              { name: 'WEIR_PREFIX', value: prefix }
              { name: 'WEIR_CMS_URL', value: cmsUrl }
            ],
            extraSettings
          )
          probes: [
            { type: 'Startup', httpGet: { path: '/', port: 8080 }, periodSeconds: 5, failureThreshold: 24 }
            { type: 'Liveness', httpGet: { path: '/', port: 8080 }, periodSeconds: 30, failureThreshold: 4 }
          ]
        }
      ]
      scale: {
        // One at least: the queue is nearly empty while lanes have work, and the timer of sweep needs a replica.
        minReplicas: 1
        maxReplicas: maximumReplicas
        rules: [
          { name: 'http', http: { metadata: { concurrentRequests: '32' } } }
          {
            name: 'tickets'
            azureQueue: {
              accountName: storage.outputs.name
              queueName: '${prefix}-tickets'
              queueLength: 16
              identity: identity.outputs.id
            }
          }
        ]
      }
    }
  }
  dependsOn: [pull, monitoring]
}

module alerts '../../infra/modules/alerts.bicep' = {
  name: 'alerts'
  params: {
    name: name
    location: location
    tags: tags
    componentId: monitoring.outputs.componentId
    appId: ''
    healthHost: app.properties.configuration.ingress.fqdn
    storageId: storage.outputs.id
    actionGroupId: monitoring.outputs.actionGroupId
    maximumQueueLength: 500
    maximumServerErrors: 5
  }
}

@description('Address of Weir.')
output WEIR_URL string = 'https://${app.properties.configuration.ingress.fqdn}'

@description('Name of the storage account.')
output WEIR_STORAGE string = storage.outputs.name
