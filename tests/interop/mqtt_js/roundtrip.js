// MQTT.js against a broker: node roundtrip.js URL PROTOCOL_VERSION [CA]
// Subscribes, publishes at every QoS and once retained, and prints what comes, a JSON object a line.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// The packages are installed beside a copy of package.json, not here.
const mqtt = createRequire(`${process.cwd()}/`)("mqtt");
const [url, protocolVersion, ca] = process.argv.slice(2);
const client = await mqtt.connectAsync(url, {
  protocolVersion: Number(protocolVersion),
  ca: ca && readFileSync(ca),
  reconnectPeriod: 0,
});

const expected = 4;
let received = 0;
client.on("message", async (topic, payload, packet) => {
  const { qos, retain } = packet;
  console.log(JSON.stringify({ topic, size: payload.length, text: payload.toString().slice(0, 20), qos, retain }));
  if (++received === expected) await client.endAsync();
});

await client.publishAsync("a/retained", "kept", { qos: 1, retain: true });
await client.subscribeAsync("a/#", { qos: 2 });
for (const qos of [0, 1, 2]) {
  // The last one is larger than a frame, a TLS record or a read.
  await client.publishAsync(`a/${qos}`, qos < 2 ? `at ${qos}` : "x".repeat(300_000), { qos });
}
