import { readFileSync } from 'node:fs'
import { config, list } from '@keystone-6/core'
import { allowAll } from '@keystone-6/core/access'
import { integer, select, text } from '@keystone-6/core/fields'
import { PrismaPg } from '@prisma/adapter-pg'

const isWeir = ({ session }: any) => !!session
const connection = { host: process.env.DATABASE_SOCKET, database: 'keystone', user: 'postgres' }

export default config({
  db: { provider: 'postgresql', prismaClientOptions: () => ({ adapter: new PrismaPg(connection) }) } as any,
  server: { port: Number(process.env.PORT), host: '127.0.0.1' } as any,
  ui: { isDisabled: true },
  telemetry: false as any,
  session: {
    // A session is a bearer token. A test changes the file to end it.
    async get({ context }: any) {
      const token = readFileSync(process.env.TOKEN_FILE!, 'utf8')
      return context.req?.headers?.authorization === `Bearer ${token}` ? { id: 'weir' } : undefined
    },
    async start() {},
    async end() {},
  } as any,
  lists: {
    Article: list({
      access: { operation: { query: allowAll, create: isWeir, update: isWeir, delete: isWeir } },
      fields: {
        slug: text({ isIndexed: 'unique', validation: { isRequired: true, length: { max: 100 } } }),
        title: text({ validation: { isRequired: true, length: { max: 200 } } }),
        body: text(),
        version: integer(),
        status: select({
          options: [{ label: 'Draft', value: 'draft' }, { label: 'Published', value: 'published' }],
          defaultValue: 'draft',
        }),
      },
    }),
  },
} as any)
