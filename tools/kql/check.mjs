// Checks queries of Application Insights with the reference parser, against the columns of the tables. It reads a JSON
// list of { name, text } from standard input, and prints a JSON list of { name, code, message, at } of all errors.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import vm from "node:vm";

// The library is made for browsers: its parts are scripts that share the global object.
const require = createRequire(import.meta.url);
for (const part of ["bridge.min.js", "Kusto.Language.Bridge.min.js"]) {
  const path = require.resolve(`@kusto/language-service-next/${part}`);
  vm.runInThisContext(readFileSync(path, "utf8"), { filename: path });
}
const { Symbols, GlobalState, KustoCode } = globalThis.Kusto.Language;

// The tables of Application Insights that the queries read, with the columns that they use.
const common = "timestamp: datetime, customDimensions: dynamic, itemCount: int, cloud_RoleName: string, " +
  "cloud_RoleInstance: string, operation_Id: string, operation_Name: string";
const tables = {
  traces: "message: string, severityLevel: int",
  customMetrics: "name: string, value: real, valueCount: int, valueSum: real, valueMin: real, valueMax: real",
  requests: "id: string, name: string, url: string, success: string, resultCode: string, duration: real",
  dependencies: "id: string, name: string, target: string, type: string, success: string, resultCode: string, " +
    "duration: real, data: string",
  exceptions: "type: string, outerMessage: string, severityLevel: int",
};
const symbols = Object.entries(tables).map(
  ([name, columns]) => new Symbols.TableSymbol.$ctor7(name, `(${common}, ${columns})`, ""),
);
const database = new Symbols.DatabaseSymbol.$ctor1("app", symbols, false);
const globals = GlobalState.Default.WithDatabase(database);

const found = [];
for (const { name, text } of JSON.parse(readFileSync(0, "utf8"))) {
  const all = KustoCode.ParseAndAnalyze(text, globals).GetDiagnostics();
  for (let i = 0; i < all.Count; i++) {
    const one = all.getItem(i);
    if (one.Severity === "Error") {
      found.push({ name, code: one.Code, message: one.Message, at: text.slice(one.Start, one.Start + 40) });
    }
  }
}
console.log(JSON.stringify(found));
