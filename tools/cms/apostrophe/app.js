const fs = require('fs');

// A test removes the file TOKEN_FILE to end the token.
const keys = {};
Object.defineProperty(keys, process.env.TOKEN, {
  enumerable: true,
  get: () => (fs.existsSync(process.env.TOKEN_FILE) ? { role: 'editor' } : undefined),
});

require('apostrophe')({
  root: module,
  shortName: 'apos',
  autoBuild: false, // Weir needs the API alone
  baseUrl: `http://127.0.0.1:${process.env.PORT}`,
  modules: {
    '@apostrophecms/express': {
      options: { port: Number(process.env.PORT), address: '127.0.0.1', session: { secret: 'weir-test' }, apiKeys: keys },
    },
    '@apostrophecms/db': { options: { uri: process.env.DATABASE_URI } },
    '@apostrophecms/asset': { options: { watch: false, hmr: false } },
    article: {},
  },
});
