// Reports success answers of an operation whose JSON schemas differ. The document is not resolved: a schema that two
// answers share is the same reference.
export default function oneSuccessSchema(responses) {
  const schemas = new Map();
  for (const [status, response] of Object.entries(responses)) {
    const schema = response?.content?.["application/json"]?.schema;
    if (status.startsWith("2") && schema) schemas.set(JSON.stringify(schema), status);
  }
  if (schemas.size < 2) return [];
  return [{ message: `The answers ${[...schemas.values()].join(" and ")} have different schemas.` }];
}
