// At its first start Strapi makes the token that recipes/strapi/README.md asks for, and writes it to TOKEN_FILE.
const fs = require('fs');

module.exports = {
  async bootstrap({ strapi }) {
    const tokens = strapi.service('admin::api-token');
    if (await tokens.exists({ name: 'weir' })) return;

    const permissions = ['find', 'create', 'update', 'delete'].map((action) => `api::article.article.${action}`);
    const token = await tokens.create({ name: 'weir', description: '', type: 'custom', lifespan: null, permissions });
    fs.writeFileSync(process.env.TOKEN_FILE, token.accessKey);
  },
};
