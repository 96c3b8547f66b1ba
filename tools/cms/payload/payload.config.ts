import { postgresAdapter } from '@payloadcms/db-postgres'
import { lexicalEditor } from '@payloadcms/richtext-lexical'
import { buildConfig } from 'payload'
import { migrations } from './migrations'

export default buildConfig({
  secret: 'weir-test-secret',
  telemetry: false,
  editor: lexicalEditor(),
  db: postgresAdapter({
    pool: { host: process.env.DATABASE_SOCKET, database: 'payload', user: 'postgres' },
    push: false,
    migrationDir: './migrations',
    prodMigrations: migrations,
  }),
  collections: [
    { slug: 'users', auth: { useAPIKey: true }, fields: [] },
    {
      slug: 'articles',
      admin: { useAsTitle: 'title' },
      versions: { drafts: true, maxPerDoc: 5 },
      fields: [
        { name: 'slug', type: 'text', required: true, unique: true, index: true },
        { name: 'title', type: 'text', required: true, maxLength: 150 },
        { name: 'body', type: 'textarea' },
        { name: 'tags', type: 'text', hasMany: true },
      ],
    },
  ],
  typescript: { autoGenerate: false },
})
