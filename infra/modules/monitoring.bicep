// Application Insights on a Log Analytics workspace, and the action group that alerts go to.

@description('Name of the Application Insights component.')
param name string

@description('Name of the workspace.')
param workspaceName string

@description('Name of the action group.')
param actionGroupName string

@description('Region of all of them.')
param location string

@description('Tags of all of them.')
param tags object

@description('Days for which logs are kept.')
@minValue(30)
@maxValue(730)
param retentionDays int

@description('GB of logs a day after which the workspace takes no more; -1 for no bound.')
param dailyCapGb int

@description('Mail addresses that alerts go to.')
param alertMails array

@description('Address that alerts are posted to in the common alert schema; empty for none.')
@secure()
param alertWebhook string

@description('Object id of the identity of the app.')
param appPrincipalId string

resource workspace 'Microsoft.OperationalInsights/workspaces@2026-03-01' = {
  name: workspaceName
  location: location
  tags: tags
  properties: {
    sku: { name: 'PerGB2018' }
    retentionInDays: retentionDays
    workspaceCapping: { dailyQuotaGb: dailyCapGb }
    features: { disableLocalAuth: true }
  }
}

// Local authentication is off: the connection string names the component and opens nothing.
resource component 'Microsoft.Insights/components@2020-02-02' = {
  name: name
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    DisableLocalAuth: true
    WorkspaceResourceId: workspace.id
  }
}

var webhooks = [{ name: 'webhook', serviceUri: alertWebhook, useCommonAlertSchema: true }]

resource actionGroup 'Microsoft.Insights/actionGroups@2023-01-01' = {
  name: actionGroupName
  location: 'global'
  tags: tags
  properties: {
    enabled: true
    groupShortName: 'weir'
    emailReceivers: [
      for (mail, i) in alertMails: { name: 'mail-${i}', emailAddress: mail, useCommonAlertSchema: true }
    ]
    webhookReceivers: empty(alertWebhook) ? [] : webhooks
  }
}

var monitoringMetricsPublisher = '3913510d-42f4-4e42-8a64-420c390055eb'

resource publisher 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(component.id, appPrincipalId, monitoringMetricsPublisher)
  scope: component
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', monitoringMetricsPublisher)
  }
}

@description('Resource id of the component.')
output componentId string = component.id

@description('Resource id of the action group.')
output actionGroupId string = actionGroup.id

@description('Name of the component.')
output componentName string = component.name
