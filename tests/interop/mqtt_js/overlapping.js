// MQTT.js with two subscriptions that overlap, each with a Subscription Identifier: node overlapping.js URL
// Publishes a message that both match at each QoS, and prints what comes, a JSON object a line.
import { createRequire } from "node:module";

// The packages are installed beside a copy of package.json, not here.
const mqtt = createRequire(`${process.cwd()}/`)("mqtt");
const client = await mqtt.connectAsync(process.argv[2], { protocolVersion: 5, reconnectPeriod: 0 });

client.on("message", async (topic, payload, packet) => {
  const identifiers = [packet.properties?.subscriptionIdentifier ?? []].flat();
  console.log(JSON.stringify({ text: payload.toString(), qos: packet.qos, identifiers }));
  if (topic === "a/last") await client.endAsync();
});

await client.subscribeAsync("a/#", { qos: 2, properties: { subscriptionIdentifier: 1 } });
await client.subscribeAsync("a/+", { qos: 2, properties: { subscriptionIdentifier: 2 } });
for (const qos of [0, 1, 2]) await client.publishAsync("a/b", `at ${qos}`, { qos });
await client.subscribeAsync("a/last", { qos: 2 });
await client.unsubscribeAsync(["a/#", "a/+"]);
await client.publishAsync("a/last", "last", { qos: 2 });
