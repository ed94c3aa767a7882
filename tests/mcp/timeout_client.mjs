// Plays steps with a TypeScript SDK, and prints their results as JSON. Arguments: the folder of the packages, which SDK
// (`sdk` for the first generation, `client` for the second), and the server's address or command. Steps come as JSON on
// standard input: { call, arguments, timeout } with seconds, or { sleep }.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [folder, kind, command, ...args] = process.argv.slice(2);
const packages = createRequire(`${folder}/`);
const first = kind === "sdk";
const { Client } = packages(first ? "@modelcontextprotocol/sdk/client/index.js" : "@modelcontextprotocol/client");
const overHttp = command.startsWith("http://");
const { StdioClientTransport } = packages(
  first ? "@modelcontextprotocol/sdk/client/stdio.js" : "@modelcontextprotocol/client/stdio",
);
const { StreamableHTTPClientTransport } = packages(
  first ? "@modelcontextprotocol/sdk/client/streamableHttp.js" : "@modelcontextprotocol/client",
);
const client = new Client({ name: "giving-up", version: "1" });
await client.connect(
  overHttp
    ? new StreamableHTTPClientTransport(new URL(command))
    : new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }),
);
const outcomes = [];
for (const step of JSON.parse(readFileSync(0, "utf8"))) {
  if (step.sleep) {
    await new Promise((done) => setTimeout(done, step.sleep * 1000));
    outcomes.push(null);
    continue;
  }
  const options = { timeout: (step.timeout ?? 60) * 1000 };
  const params = { name: step.call, arguments: step.arguments };
  try {
    const result = first ? client.callTool(params, undefined, options) : client.callTool(params, options);
    outcomes.push({ result: await result });
  } catch (error) {
    outcomes.push({ error: String(error) });
  }
}
await client.close();
console.log(JSON.stringify(outcomes));
process.exit(0);
