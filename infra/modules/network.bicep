// A virtual network for the app: a subnet that it sends from, one for private endpoints, and a NAT gateway with a fixed
// public address, if the CMS admits known addresses only.

@description('Name of the virtual network.')
param name string

@description('Region of the network.')
param location string

@description('Tags of all that is made here.')
param tags object

@description('Addresses of the network. Choose a range that is free where the network is peered.')
param addressPrefix string

@description('Service that the subnet of the app is delegated to: Microsoft.App/environments for Flex Consumption and Container Apps, Microsoft.Web/serverFarms for Premium and Dedicated.')
@allowed(['Microsoft.App/environments', 'Microsoft.Web/serverFarms'])
param delegation string

@description('True if all that the app sends leaves by one fixed public address.')
param hasFixedAddress bool

resource address 'Microsoft.Network/publicIPAddresses@2025-09-01' = if (hasFixedAddress) {
  name: '${name}-out'
  location: location
  tags: tags
  sku: { name: 'Standard' }
  properties: {
    publicIPAddressVersion: 'IPv4'
    publicIPAllocationMethod: 'Static'
  }
}

resource gateway 'Microsoft.Network/natGateways@2025-09-01' = if (hasFixedAddress) {
  name: '${name}-nat'
  location: location
  tags: tags
  sku: { name: 'Standard' }
  properties: {
    idleTimeoutInMinutes: 10
    publicIpAddresses: [{ id: address.id }]
  }
}

resource appGroup 'Microsoft.Network/networkSecurityGroups@2025-09-01' = {
  name: '${name}-app'
  location: location
  tags: tags
  properties: {}
}

resource endpointGroup 'Microsoft.Network/networkSecurityGroups@2025-09-01' = {
  name: '${name}-endpoints'
  location: location
  tags: tags
  properties: {
    securityRules: [
      {
        name: 'https-from-network'
        properties: {
          access: 'Allow'
          direction: 'Inbound'
          priority: 100
          protocol: 'Tcp'
          sourceAddressPrefix: 'VirtualNetwork'
          sourcePortRange: '*'
          destinationAddressPrefix: 'VirtualNetwork'
          destinationPortRange: '443'
        }
      }
      {
        name: 'nothing-else'
        properties: {
          access: 'Deny'
          direction: 'Inbound'
          priority: 200
          protocol: '*'
          sourceAddressPrefix: '*'
          sourcePortRange: '*'
          destinationAddressPrefix: '*'
          destinationPortRange: '*'
        }
      }
    ]
  }
}

resource network 'Microsoft.Network/virtualNetworks@2025-09-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    addressSpace: { addressPrefixes: [addressPrefix] }
    subnets: [
      {
        name: 'app'
        properties: {
          addressPrefix: cidrSubnet(addressPrefix, 26, 0)
          delegations: [{ name: 'app', properties: { serviceName: delegation } }]
          networkSecurityGroup: { id: appGroup.id }
          natGateway: hasFixedAddress ? { id: gateway.id } : null
        }
      }
      {
        name: 'endpoints'
        properties: {
          addressPrefix: cidrSubnet(addressPrefix, 26, 1)
          networkSecurityGroup: { id: endpointGroup.id }
          privateEndpointNetworkPolicies: 'Enabled'
        }
      }
    ]
  }
}

@description('Resource id of the network.')
output id string = network.id

@description('Resource id of the subnet that the app sends from.')
output appSubnetId string = '${network.id}/subnets/app'

@description('Resource id of the subnet of private endpoints.')
output endpointSubnetId string = '${network.id}/subnets/endpoints'

@description('The public address that the CMS sees; empty without a NAT gateway.')
output outgoingAddress string = hasFixedAddress ? address!.properties.ipAddress : ''
