import { down, up } from './initial'

export const migrations = [{ up, down, name: 'initial' }]
