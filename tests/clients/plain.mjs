// A plain A2A 0.3 client, by the JavaScript SDK: asks, streams and cancels, and prints what it got as one JSON object.
// Arguments: the directory of the SDK, the agent's URL, a script to answer, one to stream, one to cancel. The token is
// in the environment.
import { createRequire } from "node:module";

const [modules, url, toAnswer, toStream, toCancel] = process.argv.slice(2);
const { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory } =
  createRequire(`${modules}/`)("@a2a-js/sdk/client");

const fetchImpl = (target, init = {}) => {
  const headers = new Headers(init.headers);
  headers.set("Authorization", `Bearer ${process.env.TOKEN}`);
  return fetch(target, { ...init, headers });
};
const factory = new ClientFactory({
  transports: [new JsonRpcTransportFactory({ fetchImpl })],
  cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
});
const said = (text) => ({
  message: { kind: "message", messageId: crypto.randomUUID(), role: "user", parts: [{ kind: "text", text }] },
});
const textOf = (artifact) => artifact.parts.map((part) => part.text).join("");

const results = {};
const client = await factory.createFromUrl(url);
results.card = (await client.getAgentCard()).protocolVersion;

const answer = await client.sendMessage(said(toAnswer));
results.answer = { state: answer.status.state, text: answer.artifacts.map(textOf).join("") };

const pieces = [];
let last = "";
for await (const event of client.sendMessageStream(said(toStream))) {
  if (event.kind === "artifact-update") pieces.push(textOf(event.artifact));
  if (event.kind === "status-update") last = event.status.state;
}
results.stream = { state: last, pieces };

for await (const event of client.sendMessageStream(said(toCancel))) {
  if (event.kind === "artifact-update" && !results.cancel) {
    const cancelled = await client.cancelTask({ id: event.taskId });
    results.cancel = { state: cancelled.status.state };
    results.again = await client.cancelTask({ id: event.taskId }).then(
      () => "no error",
      (error) => error.errorResponse.error.code,
    );
  }
}
console.log(JSON.stringify(results));
