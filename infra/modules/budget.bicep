// A budget of the resource group: mails at 80 % and 100 % of the amount, and when the forecast passes it.

@description('Name of the budget.')
param name string

@description('Amount a month, in the currency of the subscription.')
@minValue(1)
param amount int

@description('First day of the budget: the first of a month, such as 2026-12-01. It cannot be changed later.')
param startDate string

@description('Mail addresses that are told, beside the owners of the subscription.')
param mails array

resource budget 'Microsoft.Consumption/budgets@2026-06-01' = {
  name: name
  properties: {
    amount: amount
    category: 'Cost'
    timeGrain: 'Monthly'
    timePeriod: { startDate: startDate }
    notifications: {
      actual80: {
        enabled: true
        operator: 'GreaterThanOrEqualTo'
        threshold: 80
        thresholdType: 'Actual'
        contactEmails: mails
        contactRoles: ['Owner']
      }
      actual100: {
        enabled: true
        operator: 'GreaterThanOrEqualTo'
        threshold: 100
        thresholdType: 'Actual'
        contactEmails: mails
        contactRoles: ['Owner']
      }
      forecast100: {
        enabled: true
        operator: 'GreaterThan'
        threshold: 100
        thresholdType: 'Forecasted'
        contactEmails: mails
        contactRoles: ['Owner']
      }
    }
  }
}

@description('Name of the budget.')
output name string = budget.name
