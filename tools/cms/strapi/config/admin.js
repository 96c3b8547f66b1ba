module.exports = {
  auth: { secret: 'weir-test-secret' },
  apiToken: { salt: 'weir-test-salt' },
  transfer: { token: { salt: 'weir-test-salt' } },
  serveAdminPanel: false,
};
