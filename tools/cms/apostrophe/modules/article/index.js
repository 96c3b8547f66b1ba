module.exports = {
  extend: '@apostrophecms/piece-type',
  options: { label: 'Article', pluralLabel: 'Articles' },
  fields: {
    add: {
      body: { type: 'string', textarea: true, min: 5, label: 'Body' },
      tags: { type: 'array', label: 'Tags', fields: { add: { name: { type: 'string', label: 'Name' } } } },
    },
    group: { basics: { label: 'Basics', fields: ['title', 'body', 'tags'] } },
  },
};
