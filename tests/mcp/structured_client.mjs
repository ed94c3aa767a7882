// Plays steps with a TypeScript SDK, and prints their results as JSON. Arguments: the folder of the packages, which SDK
// (`sdk` for the first generation, `client` for the second), and the command of the server. Calls come as JSON on standard
// input: [[tool, arguments], ...]. The SDKs check structured results against the listed schemas.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [folder, kind, command, ...args] = process.argv.slice(2);
const packages = createRequire(`${folder}/`);
const [{ Client }, { StdioClientTransport }] =
  kind === "sdk"
    ? [
        packages("@modelcontextprotocol/sdk/client/index.js"),
        packages("@modelcontextprotocol/sdk/client/stdio.js"),
      ]
    : [packages("@modelcontextprotocol/client"), packages("@modelcontextprotocol/client/stdio")];

const client = new Client({ name: "structured", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }));
const outcomes = [{ tools: (await client.listTools()).tools }];
for (const [name, given] of JSON.parse(readFileSync(0, "utf8"))) {
  try {
    outcomes.push({ result: await client.callTool({ name, arguments: given }) });
  } catch (error) {
    outcomes.push({ error: String(error) });
  }
}
await client.close();
console.log(JSON.stringify(outcomes));
