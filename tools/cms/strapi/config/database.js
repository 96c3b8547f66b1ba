const socket = process.env.DATABASE_SOCKET;
const pool = { min: 2, max: 10 };

module.exports = process.env.DATABASE_CLIENT === 'mysql'
  ? { connection: { client: 'mysql', connection: { socketPath: socket, database: 'strapi', user: 'root' }, pool } }
  : { connection: { client: 'postgres', connection: { host: socket, database: 'strapi', user: 'postgres' }, pool } };
