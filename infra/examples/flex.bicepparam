// Flex Consumption for an upstream that posts in bursts. With delivery.instances: process in weir.yaml, receivers leave
// deliveries to the function process, which has an instance of its own and looks at the tickets each two seconds.
using '../main.bicep'

param environmentName = 'weir-prod'
param location = 'westeurope'
param plan = 'flex'
param instanceMemory = 2048
param maximumInstances = 40
param alwaysReadyHttp = 1
param alwaysReadyProcess = 1
param maximumPollingInterval = '00:00:02'
param cmsUrl = 'https://cms.example/api/content'
param cmsSecrets = { WEIR_CMS_TOKEN: 'cms-token' }
param isStorageLocked = true
param alertMails = ['operators@example.com']
param budgetAmount = 100
param budgetStart = '2026-12-01'
