// Alert rules on Weir's own metrics, for those who push them by OTLP to a collector that writes to an Azure Monitor
// workspace. The expressions are those of deploy/alerts.yaml that answer "does it deliver".

@description('Name of the group of rules.')
param name string

@description('Region of the Azure Monitor workspace.')
param location string

@description('Tags of the group.')
param tags object

@description('Resource id of the Azure Monitor workspace (Microsoft.Monitor/accounts).')
param monitorWorkspaceId string

@description('Resource id of the action group.')
param actionGroupId string

var rules = [
  {
    name: 'WeirBacklogOld'
    severity: 2
    for: 'PT5M'
    runbook: 'the-backlog-grows'
    expression: 'max by (lane) (weir_lane_oldest_age_seconds) > 900 unless on (lane) max by (lane) (weir_lane_paused{by=~"operator|calendar"}) == 1'
  }
  {
    name: 'WeirLanePausedLong'
    severity: 2
    for: 'PT4H'
    runbook: 'a-lane-is-paused'
    expression: 'max by (lane) (weir_lane_paused{by="operator"}) == 1'
  }
  {
    name: 'WeirCMSUnavailable'
    severity: 1
    for: 'PT10M'
    runbook: 'the-cms-is-away'
    expression: 'max by (lane) (weir_lane_paused{by="cms"}) == 1'
  }
  {
    name: 'WeirContractMissing'
    severity: 1
    for: 'PT5M'
    runbook: 'a-contract-is-missing'
    expression: 'max by (lane, contract) (weir_lane_missing_contract_messages) > 0'
  }
  {
    name: 'WeirContractRejected'
    severity: 1
    for: 'PT1M'
    runbook: 'the-cms-rejects-a-contract'
    expression: 'sum by (contract) (max by (lane, contract) (weir_lane_braked_messages)) > 0'
  }
  {
    name: 'WeirKeysRefused'
    severity: 2
    for: 'PT15M'
    runbook: 'the-cms-answers-403-or-500'
    expression: 'max by (lane) (weir_lane_refused_keys) > 0'
  }
  {
    name: 'WeirNothingDelivered'
    severity: 1
    for: 'PT5M'
    runbook: 'nothing-is-delivered'
    expression: 'max(weir_lane_oldest_age_seconds) > 300 and sum(increase(weir_messages_finished_total[15m])) == 0 unless max(weir_lane_paused) == 1'
  }
  {
    name: 'WeirDamagedRows'
    severity: 2
    for: 'PT1M'
    runbook: 'storage-fails'
    expression: 'sum(increase(weir_damaged_rows_total[1h])) > 0'
  }
  {
    name: 'WeirMessagesDead'
    severity: 2
    for: 'PT1M'
    runbook: 'dead-messages'
    expression: 'sum by (contract) (increase(weir_messages_finished_total{stage="dead"}[15m])) > 0'
  }
  {
    name: 'WeirPostsRefused'
    severity: 2
    for: 'PT10M'
    runbook: 'posts-are-refused'
    expression: 'sum(increase(weir_messages_refused_total{reason=~"malformed|invalid|too_large|unsupported"}[30m])) > 5 and sum(increase(weir_messages_refused_total{reason=~"malformed|invalid|too_large|unsupported"}[30m])) > sum(increase(weir_messages_accepted_total[30m]))'
  }
  {
    name: 'WeirTicketsPoisoned'
    severity: 2
    for: 'PT1M'
    runbook: 'tickets-are-in-the-poison-queue'
    expression: 'sum(increase(weir_tickets_poisoned_total[30m])) > 0'
  }
  {
    name: 'WeirNotSwept'
    severity: 1
    for: 'PT10M'
    runbook: 'nothing-is-delivered'
    expression: 'absent(weir_lane_waiting) unless absent(weir_build_info)'
  }
]

resource group 'Microsoft.AlertsManagement/prometheusRuleGroups@2023-03-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    enabled: true
    interval: 'PT1M'
    scopes: [monitorWorkspaceId]
    rules: [
      for rule in rules: {
        alert: rule.name
        enabled: true
        expression: rule.expression
        for: rule.for
        severity: rule.severity
        annotations: { runbook_url: 'docs/operations.md#${rule.runbook}' }
        resolveConfiguration: { autoResolved: true, timeToResolve: 'PT10M' }
        actions: [{ actionGroupId: actionGroupId }]
      }
    ]
  }
}

@description('Resource id of the group.')
output id string = group.id
