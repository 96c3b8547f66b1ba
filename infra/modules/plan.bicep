// The function app on a Premium (EP1 to EP3) or Dedicated (B1 to P3v3) plan, Linux.
//
// Premium runs the package that stands in the container of packages: the usual way, a file share, would need a key of
// the storage account. Dedicated has a disk of its own and takes the package by zip deployment.

@description('Name of the function app; its address begins with it.')
param name string

@description('Name of the plan.')
param planName string

@description('Region of plan and app.')
param location string

@description('Tags of the plan and the app. azd finds the app by azd-service-name.')
param tags object

@description('Size of the plan: EP1 to EP3 are Premium, others Dedicated.')
param sku string

@description('Instances of a Dedicated plan, and those of a Premium plan that are never scaled in.')
@minValue(1)
@maxValue(30)
param instances int

@description('Bound on the instances of a Premium app. Instances above the number of lanes accept messages and deliver none.')
@minValue(1)
@maxValue(100)
param maximumInstances int

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

@description('True if the plan spreads over zones.')
param isZoneRedundant bool

@description('Resource id of the subnet that the app sends from; empty for none.')
param subnetId string

@description('True if callers reach the app through a private endpoint only.')
param isPrivate bool

var isPremium = startsWith(sku, 'EP')

resource component 'Microsoft.Insights/components@2020-02-02' existing = {
  name: componentName
}

resource plan 'Microsoft.Web/serverfarms@2025-03-01' = {
  name: planName
  location: location
  tags: tags
  kind: isPremium ? 'elastic' : 'linux'
  sku: { name: sku, capacity: instances }
  properties: {
    reserved: true
    zoneRedundant: isZoneRedundant
    maximumElasticWorkerCount: isPremium ? maximumInstances : null
  }
}

var packageByUrl = [
  { name: 'WEBSITE_RUN_FROM_PACKAGE', value: '${packageContainerUrl}/weir.zip' }
  { name: 'WEBSITE_RUN_FROM_PACKAGE_BLOB_MI_RESOURCE_ID', value: identityId }
]
var packageByUpload = [{ name: 'WEBSITE_RUN_FROM_PACKAGE', value: '1' }]

var extraSettings = [for setting in items(settings): { name: setting.key, value: setting.value }]

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
    clientAffinityEnabled: false
    keyVaultReferenceIdentity: identityId
    publicNetworkAccess: isPrivate ? 'Disabled' : 'Enabled'
    virtualNetworkSubnetId: empty(subnetId) ? null : subnetId
    siteConfig: {
      // Without Always On a Dedicated plan unloads the app when no HTTP comes: timers and queues stop.
      alwaysOn: !isPremium
      ftpsState: 'Disabled'
      linuxFxVersion: '' // of the runtime custom
      functionAppScaleLimit: isPremium ? maximumInstances : null
      functionsRuntimeScaleMonitoringEnabled: isPremium && !empty(subnetId)
      http20Enabled: true
      minTlsVersion: '1.2'
      minimumElasticInstanceCount: isPremium ? min(instances, 20) : null // the property takes no more
      vnetRouteAllEnabled: !empty(subnetId)
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
          { name: 'FUNCTIONS_EXTENSION_VERSION', value: '~4' }
          { name: 'FUNCTIONS_WORKER_RUNTIME', value: 'custom' }
          { name: 'WEIR_PREFIX', value: prefix }
        ],
        isPremium ? packageByUrl : packageByUpload,
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

@description('Resource id of the app.')
output id string = app.id

@description('Name of the app.')
output name string = app.name

@description('Host name of the app.')
output hostName string = app.properties.defaultHostName
