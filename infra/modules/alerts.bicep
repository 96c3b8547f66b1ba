// Alert rules on what Azure sees by itself: Weir's log lines and the host's counts in Application Insights, metrics of
// the platform, and a probe of /api/health. The rules on Weir's own metrics are in prometheus.bicep.

@description('Begins the names of the rules.')
param name string

@description('Region of the rules on logs.')
param location string

@description('Tags of the rules.')
param tags object

@description('Resource id of the Application Insights component.')
param componentId string

@description('Resource id of the function app; empty for none, such as for Container Apps.')
param appId string

@description('Host name that /api/health is probed at; empty for no probe, such as behind a private endpoint.')
param healthHost string

@description('Resource id of the storage account.')
param storageId string

@description('Resource id of the action group.')
param actionGroupId string

@description('Messages in all queues of the account, tickets and poisoned ones together, above which an alert is raised.')
param maximumQueueLength int

@description('Answers 5xx in five minutes above which an alert is raised.')
param maximumServerErrors int

// runbook is a section of docs/operations.md.
var rules = [
  {
    name: 'dead-messages'
    severity: 2
    window: 'PT15M'
    runbook: 'dead-messages'
    description: 'Messages went dead. They are kept and can be replayed.'
    query: '''
      traces
      | where customDimensions.Category == "Host.Function.Console"
      | extend line = parse_json(message)
      | where line.msg == "drain: attempt" and line.stage == "dead"
    '''
  }
  {
    name: 'lane-paused-by-cms'
    severity: 1
    window: 'PT30M'
    runbook: 'the-cms-is-away'
    description: 'The CMS has been unavailable to a lane for ten minutes. It probes by itself; no attempt is used up.'
    query: '''
      traces
      | where customDimensions.Category == "Host.Function.Console"
      | extend line = parse_json(message)
      | where line.msg == "sweep: lane is paused by the cms"
      | summarize lines = count(), since = min(timestamp), lastAt = max(timestamp) by lane = tostring(line.lane)
      | where lastAt - since > 10m and lastAt > ago(10m)
    '''
  }
  {
    name: 'keys-refused'
    severity: 2
    window: 'PT30M'
    runbook: 'the-cms-answers-403-or-500'
    description: 'The CMS has refused the messages of one key or two for a quarter of an hour, and taken no other.'
    query: '''
      traces
      | where customDimensions.Category == "Host.Function.Console"
      | extend line = parse_json(message)
      | where line.msg == "sweep: the cms refuses keys"
      | summarize lines = count(), since = min(timestamp), lastAt = max(timestamp) by lane = tostring(line.lane)
      | where lastAt - since > 15m and lastAt > ago(10m)
    '''
  }
  {
    name: 'posts-refused'
    severity: 2
    window: 'PT30M'
    runbook: 'posts-are-refused'
    description: 'More than half of the posts were refused in half an hour: an upstream or a contract has changed.'
    query: '''
      traces
      | where customDimensions.Category == "Host.Function.Console"
      | extend line = parse_json(message)
      | where line.msg == "http: answered" and line.function in ("receive", "batches")
      | where toint(line.status) in (400, 413, 415, 422)
      | summarize refused = count()
      | extend calls = toscalar(
          customMetrics
          | where name in ("receive Count", "batches Count")
          | summarize sum(valueSum))
      | where refused > 5 and refused * 2 > calls
    '''
  }
  {
    name: 'sweep-gap'
    severity: 1
    window: 'PT15M'
    runbook: 'nothing-is-delivered'
    description: 'The timer of sweep, which runs each minute, has not run for a quarter of an hour: the app is stopped, or its host cannot start.'
    query: '''
      customMetrics
      | where name == "sweep Count"
      | summarize runs = sum(valueSum)
      | where runs < 1
    '''
  }
  {
    name: 'poisoned-tickets'
    severity: 2
    window: 'PT30M'
    runbook: 'tickets-are-in-the-poison-queue'
    description: 'The host gave tickets up after five tries: process fails or is cut off.'
    query: '''
      traces
      | where customDimensions.Category == "Host.Function.Console"
      | extend line = parse_json(message)
      | where line.msg == "poison: ticket given up by the host, ringing again"
    '''
  }
  {
    name: 'lane-interrupted'
    severity: 2
    window: 'PT15M'
    runbook: 'storage-fails'
    description: 'Lanes were interrupted five times in a quarter of an hour: storage fails, or leases are lost.'
    query: '''
      traces
      | where customDimensions.Category == "Host.Function.Console"
      | extend line = parse_json(message)
      | where line.msg == "drain: interrupted"
      | summarize times = count()
      | where times >= 5
    '''
  }
  {
    name: 'damaged-rows'
    severity: 2
    window: 'PT30M'
    runbook: 'storage-fails'
    description: 'Weir has found rows in storage that it cannot read, and passes over them. weir verify lists them.'
    query: '''
      traces
      | where customDimensions.Category == "Host.Function.Console"
      | extend line = parse_json(message)
      | where line.msg == "lane: damaged row passed over"
    '''
  }
  {
    name: 'failed-functions'
    severity: 2
    window: 'PT15M'
    runbook: 'nothing-is-delivered'
    description: 'The host counted failed calls of process, poison, sweep or inbox, or ended the handler.'
    query: '''
      requests
      | where success == false and name in ("process", "poison", "sweep", "inbox")
      | summarize failures = count() by name
      | where failures > 5
    '''
  }
  {
    name: 'notifications-given-up'
    severity: 3
    window: 'PT30M'
    runbook: 'notifications-do-not-arrive'
    description: 'A receiver did not take an event for three days, and Weir gave it up.'
    query: '''
      traces
      | where customDimensions.Category == "Host.Function.Console"
      | extend line = parse_json(message)
      | where line.msg == "notify: event given up"
    '''
  }
]

resource logRules 'Microsoft.Insights/scheduledQueryRules@2026-03-01' = [
  for rule in rules: {
    name: '${name}-${rule.name}'
    location: location
    tags: tags
    kind: 'LogAlert'
    properties: {
      displayName: '${name}: ${rule.name}'
      description: '${rule.description} Runbook: docs/operations.md#${rule.runbook}'
      severity: rule.severity
      enabled: true
      autoMitigate: true
      scopes: [componentId]
      evaluationFrequency: 'PT5M'
      windowSize: rule.window
      criteria: {
        allOf: [
          {
            query: rule.query
            timeAggregation: 'Count'
            operator: 'GreaterThan'
            threshold: 0
            failingPeriods: { numberOfEvaluationPeriods: 1, minFailingPeriodsToAlert: 1 }
          }
        ]
      }
      actions: { actionGroups: [actionGroupId] }
    }
  }
]

var names = {
  serverErrors: '${name}-http-5xx'
  queueLength: '${name}-queue-length'
  storageAvailability: '${name}-storage-availability'
  health: '${name}-health'
}

resource serverErrors 'Microsoft.Insights/metricAlerts@2026-01-01' = if (!empty(appId)) {
  name: names.serverErrors
  location: 'global'
  tags: tags
  properties: {
    description: 'Posts or calls were answered 5xx. Runbook: docs/operations.md#storage-fails'
    severity: 1
    enabled: true
    autoMitigate: true
    scopes: [appId]
    evaluationFrequency: 'PT1M'
    windowSize: 'PT5M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          criterionType: 'StaticThresholdCriterion'
          name: 'answers'
          metricNamespace: 'Microsoft.Web/sites'
          metricName: 'Http5xx'
          timeAggregation: 'Total'
          operator: 'GreaterThan'
          threshold: maximumServerErrors
          skipMetricValidation: true
        }
      ]
    }
    actions: [{ actionGroupId: actionGroupId }]
  }
}

// Azure counts the messages of all queues of an account together, and once an hour.
resource queueLength 'Microsoft.Insights/metricAlerts@2026-01-01' = {
  name: names.queueLength
  location: 'global'
  tags: tags
  properties: {
    description: 'Tickets pile up, poisoned ones included: process does not run. Runbook: docs/operations.md#tickets-are-in-the-poison-queue'
    severity: 2
    enabled: true
    autoMitigate: true
    scopes: ['${storageId}/queueServices/default']
    evaluationFrequency: 'PT1H'
    windowSize: 'PT1H'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          criterionType: 'StaticThresholdCriterion'
          name: 'messages'
          metricNamespace: 'Microsoft.Storage/storageAccounts/queueServices'
          metricName: 'QueueMessageCount'
          timeAggregation: 'Average'
          operator: 'GreaterThan'
          threshold: maximumQueueLength
          skipMetricValidation: true
        }
      ]
    }
    actions: [{ actionGroupId: actionGroupId }]
  }
}

resource storageAvailability 'Microsoft.Insights/metricAlerts@2026-01-01' = {
  name: names.storageAvailability
  location: 'global'
  tags: tags
  properties: {
    description: 'Storage answers less than 99 of 100 requests. Runbook: docs/operations.md#storage-fails'
    severity: 1
    enabled: true
    autoMitigate: true
    scopes: [storageId]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          criterionType: 'StaticThresholdCriterion'
          name: 'availability'
          metricNamespace: 'Microsoft.Storage/storageAccounts'
          metricName: 'Availability'
          timeAggregation: 'Average'
          operator: 'LessThan'
          threshold: 99
        }
      ]
    }
    actions: [{ actionGroupId: actionGroupId }]
  }
}

resource probe 'Microsoft.Insights/webtests@2022-06-15' = if (!empty(healthHost)) {
  name: '${name}-health'
  location: location
  tags: union(tags, { 'hidden-link:${componentId}': 'Resource' })
  kind: 'standard'
  properties: {
    SyntheticMonitorId: '${name}-health'
    Name: '${name}-health'
    Kind: 'standard'
    Enabled: true
    Frequency: 300
    Timeout: 30
    RetryEnabled: true
    Locations: [{ Id: 'emea-nl-ams-azr' }, { Id: 'us-va-ash-azr' }, { Id: 'apac-sg-sin-azr' }]
    Request: { RequestUrl: 'https://${healthHost}/api/health', HttpVerb: 'GET' }
    ValidationRules: { ExpectedHttpStatusCode: 200, SSLCheck: true, SSLCertRemainingLifetimeCheck: 7 }
  }
}

resource health 'Microsoft.Insights/metricAlerts@2026-01-01' = if (!empty(healthHost)) {
  name: names.health
  location: 'global'
  tags: tags
  properties: {
    description: '/api/health does not answer 200 to two of three places. Runbook: docs/operations.md#nothing-is-delivered'
    severity: 1
    enabled: true
    autoMitigate: true
    scopes: [probe.id, componentId]
    evaluationFrequency: 'PT1M'
    windowSize: 'PT5M'
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.WebtestLocationAvailabilityCriteria'
      webTestId: probe.id
      componentId: componentId
      failedLocationCount: 2
    }
    actions: [{ actionGroupId: actionGroupId }]
  }
}

@description('Names of the rules on logs.')
output ruleNames array = [for rule in rules: '${name}-${rule.name}']
