module.exports = ({ env }) => ({
  host: '127.0.0.1',
  port: env.int('PORT'),
  dirs: { public: env('PUBLIC_DIR') },
  logger: { updates: { enabled: false } },
  app: { keys: ['weir-test-key'] },
});
