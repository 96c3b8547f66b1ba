// Settings of openapi-ts: a client on fetch, with the extensions of files that Node asks for.
export default {
  input: "openapi.yaml",
  output: { path: "hey", module: { extension: ".js" } },
  plugins: ["@hey-api/client-fetch", "@hey-api/typescript", "@hey-api/sdk"],
};
