// Weir on Azure: a resource group with all that it needs. docs/deploy.md has the commands.
//
// No setting holds a key. The app signs in to storage, Key Vault and Application Insights by its identity.
targetScope = 'subscription'

@description('Name of the environment: 2 to 20 of a-z, 0-9 and hyphens. It begins the names of all resources.')
@minLength(2)
@maxLength(20)
param environmentName string

@description('Region of all resources.')
param location string

@description('Name of the resource group; empty for rg-<environmentName>.')
param resourceGroupName string = ''

@description('Tags of all resources.')
param tags object = {}

@description('Plan: flex (Flex Consumption), premium or dedicated.')
@allowed(['flex', 'premium', 'dedicated'])
param plan string = 'flex'

@description('Size of a Premium (EP1 to EP3) or Dedicated (B1 to B3, S1 to S3, P0v3 to P3v3) plan; flex has none.')
param planSku string = plan == 'premium' ? 'EP1' : 'P0v3'

@description('Instances of a Dedicated plan, and those of a Premium plan that are never scaled in.')
@minValue(1)
@maxValue(30)
param instances int = 1

@description('Bound on the instances of Flex Consumption and Premium. Instances above the number of lanes only accept messages.')
@minValue(1)
@maxValue(100)
param maximumInstances int = plan == 'flex' ? 40 : 4

@description('MB of memory of a Flex Consumption instance.')
@allowed([512, 2048, 4096])
param instanceMemory int = 2048

@description('Flex Consumption: instances for HTTP that are never scaled in, so that no post waits for a cold start.')
@minValue(0)
@maxValue(20)
param alwaysReadyHttp int = 0

@description('Flex Consumption: instances of the function process that are never scaled in. Set 1 if weir.yaml has delivery.instances: process.')
@minValue(0)
@maxValue(20)
param alwaysReadyProcess int = 0

@description('Longest time between two polls of the tickets by the host, such as 00:00:02; empty for that of host.json.')
param maximumPollingInterval string = ''

@description('True if plan and app spread over zones; Premium then needs three instances, Dedicated two.')
param isZoneRedundant bool = false

@description('The app setting WEIR_PREFIX: 3 to 40 of a-z and 0-9, a letter first.')
@minLength(3)
@maxLength(40)
param prefix string = 'weir'

@description('Address that messages are written to: WEIR_CMS_URL of weir.yaml. If it has a secret in it, use cmsSecrets instead.')
param cmsUrl string = ''

@description('Further app settings, by name: what weir.yaml takes from the environment, OTEL_EXPORTER_OTLP_ENDPOINT and the like.')
param settings object = {}

@description('App settings that are read from Key Vault: name of the setting to name of the secret, such as { WEIR_CMS_TOKEN: "cms-token" }. Empty: no vault is made.')
// It has the names of secrets, and no secret.
#disable-next-line secure-secrets-in-params
param cmsSecrets object = {}

@description('Redundancy of the storage account.')
@allowed(['Standard_LRS', 'Standard_ZRS', 'Standard_GRS', 'Standard_GZRS', 'Standard_RAGRS', 'Standard_RAGZRS'])
param storageSku string = 'Standard_ZRS'

@description('Days for which removed bodies can be restored; an erasure is complete only after them. 0 for no soft delete.')
@minValue(0)
@maxValue(365)
param softDeleteDays int = 7

@description('True if a lock keeps the storage account from being deleted. azd down then needs the lock removed first.')
param isStorageLocked bool = false

@description('True if storage and vault are reached through private endpoints only.')
param hasPrivateStorage bool = false

@description('True if callers reach the app through a private endpoint only. Deployments then need a runner in the network.')
param hasPrivateApp bool = false

@description('True if all requests of the app leave from one fixed public address.')
param hasFixedAddress bool = false

@description('Address range of the virtual network, at least a /25. A network is made if one of the three options above is true.')
param networkAddressPrefix string = '10.83.0.0/24'

@description('Application (client) id of the registration in Entra ID that operators sign in to; empty for no sign-in.')
param signInClientId string = ''

@description('True if weir.yaml has intake.files: the containers of the file drop and the events of its files are made.')
param hasFiles bool = false

@description('Object ids of the groups whose members may open the page.')
param signInGroups array = []

@description('Paths without sign-in: those of upstreams, scrapers, probes and the OpenAPI description.')
param signInOpenPaths array = [
  '/api/batches'
  '/api/batches/*'
  '/api/health'
  '/api/messages'
  '/api/messages/*'
  '/api/metrics'
  '/api/openapi.json'
  '/api/openapi.yaml'
  '/api/schedules'
  '/api/schedules/*'
  '/api/validate'
]

@description('Mail addresses that alerts and the budget go to.')
param alertMails array = []

@description('URL to which alerts are posted in the common alert schema; empty for none.')
@secure()
param alertWebhook string = ''

@description('Number of 5xx answers in five minutes above which an alert is raised.')
param maximumServerErrors int = 5

@description('Number of messages in all queues of the account above which an alert is raised.')
param maximumQueueLength int = 500

@description('Azure Monitor workspace that a collector writes Weir\'s metrics to; empty for no rules on them.')
param monitorWorkspaceId string = ''

@description('Days for which logs are kept.')
@minValue(30)
@maxValue(730)
param logRetentionDays int = 30

@description('GB of logs that the workspace takes in a day; -1 for no bound.')
param logDailyCapGb int = 2

@description('Budget of the resource group a month, in the currency of the subscription; 0 for none.')
@minValue(0)
param budgetAmount int = 0

@description('First day of the budget, the first of a month, such as 2026-12-01; it cannot be changed later. Empty: no budget.')
param budgetStart string = ''

@description('Object id of the person or pipeline that publishes packages, sets secrets and runs commands on storage; empty for none.')
param deployerPrincipalId string = ''

@description('Kind of the deployer.')
@allowed(['User', 'Group', 'ServicePrincipal'])
param deployerPrincipalType string = 'User'

var groupName = empty(resourceGroupName) ? 'rg-${environmentName}' : resourceGroupName
var token = toLower(uniqueString(subscription().id, environmentName, location))
var name = '${environmentName}-${token}'
var allTags = union(tags, { 'azd-env-name': environmentName })
var packageContainer = 'app-package'
var hasNetwork = hasPrivateStorage || hasPrivateApp || hasFixedAddress
var hasVault = !empty(cmsSecrets)
var vaultName = take('kv${token}', 24)

resource group 'Microsoft.Resources/resourceGroups@2025-04-01' = {
  name: groupName
  location: location
  tags: allTags
}

module identity 'modules/identity.bicep' = {
  scope: group
  name: 'identity'
  params: { name: 'id-${name}', location: location, tags: allTags }
}

module storage 'modules/storage.bicep' = {
  scope: group
  name: 'storage'
  params: {
    name: take('st${token}', 24)
    location: location
    tags: allTags
    sku: storageSku
    prefix: prefix
    packageContainer: packageContainer
    softDeleteDays: softDeleteDays
    isPrivate: hasPrivateStorage
    isLocked: isStorageLocked
    appPrincipalId: identity.outputs.principalId
    deployerPrincipalId: deployerPrincipalId
    deployerPrincipalType: deployerPrincipalType
  }
}

module monitoring 'modules/monitoring.bicep' = {
  scope: group
  name: 'monitoring'
  params: {
    name: 'appi-${name}'
    workspaceName: 'log-${name}'
    actionGroupName: 'ag-${name}'
    location: location
    tags: allTags
    retentionDays: logRetentionDays
    dailyCapGb: logDailyCapGb
    alertMails: alertMails
    alertWebhook: alertWebhook
    appPrincipalId: identity.outputs.principalId
  }
}

module vault 'modules/vault.bicep' = if (hasVault) {
  scope: group
  name: 'vault'
  params: {
    name: vaultName
    location: location
    tags: allTags
    isPrivate: hasPrivateStorage
    appPrincipalId: identity.outputs.principalId
    deployerPrincipalId: deployerPrincipalId
    deployerPrincipalType: deployerPrincipalType
  }
}

module network 'modules/network.bicep' = if (hasNetwork) {
  scope: group
  name: 'network'
  params: {
    name: 'vnet-${name}'
    location: location
    tags: allTags
    addressPrefix: networkAddressPrefix
    delegation: plan == 'flex' ? 'Microsoft.App/environments' : 'Microsoft.Web/serverFarms'
    hasFixedAddress: hasFixedAddress
  }
}

module storageEndpoints 'modules/endpoint.bicep' = [
  for part in ['blob', 'queue', 'table']: if (hasPrivateStorage) {
    scope: group
    name: 'endpoint-${part}'
    params: {
      name: 'pe-${name}-${part}'
      location: location
      tags: allTags
      targetId: storage.outputs.id
      part: part
      zoneName: 'privatelink.${part}.${environment().suffixes.storage}'
      networkId: network!.outputs.id
      subnetId: network!.outputs.endpointSubnetId
    }
  }
]

module files 'modules/files.bicep' = if (hasFiles) {
  scope: group
  name: 'files'
  params: {
    name: 'evgt-${name}'
    location: location
    tags: allTags
    storageName: storage.outputs.name
    prefix: prefix
  }
}

module vaultEndpoint 'modules/endpoint.bicep' = if (hasPrivateStorage && hasVault) {
  scope: group
  name: 'endpoint-vault'
  params: {
    name: 'pe-${name}-vault'
    location: location
    tags: allTags
    targetId: vault!.outputs.id
    part: 'vault'
    zoneName: 'privatelink.vaultcore.azure.net'
    networkId: network!.outputs.id
    subnetId: network!.outputs.endpointSubnetId
  }
}

module appEndpoint 'modules/endpoint.bicep' = if (hasPrivateApp) {
  scope: group
  name: 'endpoint-app'
  params: {
    name: 'pe-${name}-app'
    location: location
    tags: allTags
    targetId: plan == 'flex' ? flex!.outputs.id : planned!.outputs.id
    part: 'sites'
    zoneName: 'privatelink.azurewebsites.net'
    networkId: network!.outputs.id
    subnetId: network!.outputs.endpointSubnetId
  }
}

// Key Vault references: the platform reads the secret by the identity of the app, and again each day.
var secretSettings = toObject(
  items(cmsSecrets),
  secret => secret.key,
  secret => '@Microsoft.KeyVault(VaultName=${vaultName};SecretName=${secret.value})'
)

var appSettings = union(
  empty(cmsUrl) ? {} : { WEIR_CMS_URL: cmsUrl },
  empty(maximumPollingInterval)
    ? {}
    : { AzureFunctionsJobHost__extensions__queues__maxPollingInterval: maximumPollingInterval },
  settings,
  secretSettings
)

var signInSettings = empty(signInClientId) ? {} : {
  OVERRIDE_USE_MI_FIC_ASSERTION_CLIENTID: identity.outputs.clientId
  // The audit log names a person only on paths that need sign-in.
  WEIR_SIGN_IN_OPEN_PATHS: join(signInOpenPaths, ' ')
}

module flex 'modules/flex.bicep' = if (plan == 'flex') {
  scope: group
  name: 'app'
  params: {
    name: 'func-${name}'
    planName: 'plan-${name}'
    location: location
    tags: allTags
    identityId: identity.outputs.id
    identityClientId: identity.outputs.clientId
    storageName: storage.outputs.name
    packageContainerUrl: storage.outputs.packageContainerUrl
    componentName: monitoring.outputs.componentName
    prefix: prefix
    settings: union(appSettings, signInSettings)
    instanceMemory: instanceMemory
    maximumInstances: maximumInstances
    alwaysReady: concat(
      alwaysReadyHttp > 0 ? [{ name: 'http', instanceCount: alwaysReadyHttp }] : [],
      alwaysReadyProcess > 0 ? [{ name: 'function:process', instanceCount: alwaysReadyProcess }] : []
    )
    isZoneRedundant: isZoneRedundant
    subnetId: hasNetwork ? network!.outputs.appSubnetId : ''
    isPrivate: hasPrivateApp
  }
  // The host reads storage and Key Vault references as soon as the app exists.
  dependsOn: [storageEndpoints, vaultEndpoint, vault]
}

module planned 'modules/plan.bicep' = if (plan != 'flex') {
  scope: group
  name: 'app-on-plan'
  params: {
    name: 'func-${name}'
    planName: 'plan-${name}'
    location: location
    tags: allTags
    sku: planSku
    instances: instances
    maximumInstances: maximumInstances
    identityId: identity.outputs.id
    identityClientId: identity.outputs.clientId
    storageName: storage.outputs.name
    packageContainerUrl: storage.outputs.packageContainerUrl
    componentName: monitoring.outputs.componentName
    prefix: prefix
    settings: union(appSettings, signInSettings)
    isZoneRedundant: isZoneRedundant
    subnetId: hasNetwork ? network!.outputs.appSubnetId : ''
    isPrivate: hasPrivateApp
  }
  dependsOn: [storageEndpoints, vaultEndpoint, vault]
}

module signIn 'modules/signin.bicep' = if (!empty(signInClientId)) {
  scope: group
  name: 'sign-in'
  params: {
    appName: plan == 'flex' ? flex!.outputs.name : planned!.outputs.name
    clientId: signInClientId
    groups: signInGroups
    openPaths: signInOpenPaths
  }
}

module alerts 'modules/alerts.bicep' = {
  scope: group
  name: 'alerts'
  params: {
    name: environmentName
    location: location
    tags: allTags
    componentId: monitoring.outputs.componentId
    appId: plan == 'flex' ? flex!.outputs.id : planned!.outputs.id
    healthHost: hasPrivateApp ? '' : plan == 'flex' ? flex!.outputs.hostName : planned!.outputs.hostName
    storageId: storage.outputs.id
    actionGroupId: monitoring.outputs.actionGroupId
    maximumQueueLength: maximumQueueLength
    maximumServerErrors: maximumServerErrors
  }
}

module prometheus 'modules/prometheus.bicep' = if (!empty(monitorWorkspaceId)) {
  scope: group
  name: 'prometheus'
  params: {
    name: environmentName
    location: location
    tags: allTags
    monitorWorkspaceId: monitorWorkspaceId
    actionGroupId: monitoring.outputs.actionGroupId
  }
}

module budget 'modules/budget.bicep' = if (budgetAmount > 0 && !empty(budgetStart)) {
  scope: group
  name: 'budget'
  params: { name: environmentName, amount: max(budgetAmount, 1), startDate: budgetStart, mails: alertMails }
}

@description('Name of the resource group; azd reads it.')
output AZURE_RESOURCE_GROUP string = group.name

@description('Name of the function app.')
output WEIR_APP string = plan == 'flex' ? flex!.outputs.name : planned!.outputs.name

@description('Plan of the app, for deploy/publish.sh.')
output WEIR_PLAN string = plan

@description('Address of Weir, for the handler\'s commands.')
output WEIR_URL string = 'https://${plan == 'flex' ? flex!.outputs.hostName : planned!.outputs.hostName}'

@description('Name of the storage account, for handler check and handler lanes by az login.')
output WEIR_STORAGE string = storage.outputs.name

@description('Name of the container of packages.')
output WEIR_PACKAGE_CONTAINER string = packageContainer

@description('Name of the vault; empty without one.')
output WEIR_VAULT string = hasVault ? vaultName : ''

@description('The public address that the CMS sees; empty without a fixed one.')
output WEIR_OUTGOING_ADDRESS string = hasNetwork ? network!.outputs.outgoingAddress : ''

@description('Redirect URI to enter at the registration that operators sign in to; empty without sign-in.')
output WEIR_SIGN_IN_REDIRECT string = empty(signInClientId) ? '' : signIn!.outputs.redirectUri

@description('Object id of the identity of the app: subject of the federated credential of the registration.')
output WEIR_PRINCIPAL string = identity.outputs.principalId
