// At its first start Strapi makes the languages of LOCALES, and the token that the recipes' READMEs ask for, which it
// writes to TOKEN_FILE.
const fs = require('fs');

module.exports = {
  async bootstrap({ strapi }) {
    const tokens = strapi.service('admin::api-token');
    if (await tokens.exists({ name: 'weir' })) return;

    for (const code of (process.env.LOCALES || '').split(' ').filter(Boolean)) {
      await strapi.plugin('i18n').service('locales').create({ code, name: code });
    }
    const actions = ['find', 'findOne', 'create', 'update', 'delete'];
    const permissions = actions.map((action) => `api::article.article.${action}`);
    const token = await tokens.create({ name: 'weir', description: '', type: 'custom', lifespan: null, permissions });
    fs.writeFileSync(process.env.TOKEN_FILE, token.accessKey);
  },
};
