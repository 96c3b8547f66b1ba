// One private endpoint, its private DNS zone, and the link of the zone to the network.

@description('Name of the endpoint.')
param name string

@description('Region of the endpoint.')
param location string

@description('Tags of the endpoint and the zone.')
param tags object

@description('Resource id of what is reached through the endpoint.')
param targetId string

@description('Part of the target that the endpoint opens: blob, queue, table, vault or sites.')
@allowed(['blob', 'queue', 'table', 'vault', 'sites'])
param part string

@description('Name of the private DNS zone, such as privatelink.blob.core.windows.net.')
param zoneName string

@description('Resource id of the network.')
param networkId string

@description('Resource id of the subnet of private endpoints.')
param subnetId string

resource zone 'Microsoft.Network/privateDnsZones@2024-06-01' = {
  name: zoneName
  location: 'global'
  tags: tags
}

resource link 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = {
  parent: zone
  name: uniqueString(networkId)
  location: 'global'
  tags: tags
  properties: {
    registrationEnabled: false
    virtualNetwork: { id: networkId }
  }
}

resource endpoint 'Microsoft.Network/privateEndpoints@2025-09-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    subnet: { id: subnetId }
    privateLinkServiceConnections: [
      { name: part, properties: { privateLinkServiceId: targetId, groupIds: [part] } }
    ]
  }
}

resource record 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2025-09-01' = {
  parent: endpoint
  name: 'default'
  properties: {
    privateDnsZoneConfigs: [{ name: part, properties: { privateDnsZoneId: zone.id } }]
  }
}

@description('Resource id of the endpoint.')
output id string = endpoint.id
