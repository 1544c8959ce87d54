// MQTT.js against a broker, as a flow that takes messages in and sends them on: node republish.js URL COUNT
// Publishes the messages that it receives on in/# again on out/#, with all their properties, and prints the answers'
// reason codes, a line each.
import { createRequire } from "node:module";

const mqtt = createRequire(`${process.cwd()}/`)("mqtt");
const [url, count] = process.argv.slice(2);
const client = await mqtt.connectAsync(url, { protocolVersion: 5, reconnectPeriod: 0 });

let sent = 0;
client.on("message", async (topic, payload, { qos, properties }) => {
  const answer = await client.publishAsync(topic.replace("in/", "out/"), payload, { qos, properties });
  console.log(answer?.reasonCode ?? 0);
  if (++sent === Number(count)) await client.endAsync();
});
await client.subscribeAsync("in/#", { qos: 2 });
console.log("ready");
