// The function app on Flex Consumption. The runtime, the package and the scale stand in functionAppConfig; the platform
// refuses FUNCTIONS_WORKER_RUNTIME here.

@description('Name of the function app; its address begins with it.')
param name string

@description('Name of the plan.')
param planName string

@description('Region of plan and app.')
param location string

@description('Tags of the plan and the app. azd finds the app by azd-service-name.')
param tags object

@description('Resource id of the identity of the app.')
param identityId string

@description('Client id of the identity of the app.')
param identityClientId string

@description('Name of the storage account.')
param storageName string

@description('Address of the container that holds the package.')
param packageContainerUrl string

@description('Name of the Application Insights component.')
param componentName string

@description('The app setting WEIR_PREFIX.')
param prefix string

@description('App settings of weir.yaml, such as WEIR_CMS_URL, by name. Values may be Key Vault references.')
param settings object

@description('MB of memory of an instance.')
@allowed([512, 2048, 4096])
param instanceMemory int

@description('Bound on the instances of the app. Instances above the number of lanes accept messages and deliver none.')
@minValue(1)
@maxValue(1000)
param maximumInstances int

@description('Instances that are never scaled in: objects of name (http or function:process) and instanceCount.')
param alwaysReady array

@description('True if the plan spreads over zones.')
param isZoneRedundant bool

@description('Resource id of the subnet that the app sends from; empty for none.')
param subnetId string

@description('True if callers reach the app through a private endpoint only.')
param isPrivate bool

resource component 'Microsoft.Insights/components@2020-02-02' existing = {
  name: componentName
}

resource plan 'Microsoft.Web/serverfarms@2025-03-01' = {
  name: planName
  location: location
  tags: tags
  kind: 'functionapp'
  sku: { name: 'FC1', tier: 'FlexConsumption' }
  properties: {
    reserved: true
    zoneRedundant: isZoneRedundant
  }
}

resource app 'Microsoft.Web/sites@2025-03-01' = {
  name: name
  location: location
  tags: union(tags, { 'azd-service-name': 'weir' })
  kind: 'functionapp,linux'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: { '${identityId}': {} }
  }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    keyVaultReferenceIdentity: identityId
    publicNetworkAccess: isPrivate ? 'Disabled' : 'Enabled'
    virtualNetworkSubnetId: empty(subnetId) ? null : subnetId
    functionAppConfig: {
      deployment: {
        storage: {
          type: 'blobContainer'
          value: packageContainerUrl
          authentication: {
            type: 'UserAssignedIdentity'
            userAssignedIdentityResourceId: identityId
          }
        }
      }
      runtime: { name: 'custom', version: '1.0' }
      scaleAndConcurrency: {
        alwaysReady: alwaysReady
        instanceMemoryMB: instanceMemory
        maximumInstanceCount: maximumInstances
      }
    }
    siteConfig: {
      http20Enabled: true
      minTlsVersion: '1.2'
      appSettings: concat(
        [
          { name: 'AzureWebJobsStorage__accountName', value: storageName }
          { name: 'AzureWebJobsStorage__credential', value: 'managedidentity' }
          { name: 'AzureWebJobsStorage__clientId', value: identityClientId }
          { name: 'APPLICATIONINSIGHTS_CONNECTION_STRING', value: component.properties.ConnectionString }
          {
            name: 'APPLICATIONINSIGHTS_AUTHENTICATION_STRING'
            value: 'ClientId=${identityClientId};Authorization=AAD'
          }
          { name: 'WEIR_PREFIX', value: prefix }
        ],
        extraSettings
      )
    }
  }

  resource noPasswordForFtp 'basicPublishingCredentialsPolicies' = {
    name: 'ftp'
    properties: { allow: false }
  }

  resource noPasswordForScm 'basicPublishingCredentialsPolicies' = {
    name: 'scm'
    properties: { allow: false }
  }
}

var extraSettings = [for setting in items(settings): { name: setting.key, value: setting.value }]

@description('Resource id of the app.')
output id string = app.id

@description('Name of the app.')
output name string = app.name

@description('Host name of the app.')
output hostName string = app.properties.defaultHostName
