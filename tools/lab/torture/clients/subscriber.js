// A subscriber with MQTT.js that prints each payload: node subscriber.js URL CLIENT QOS
import { createRequire } from "node:module";

const mqtt = createRequire(`${process.cwd()}/`)("mqtt");
const [url, clientId, qos] = process.argv.slice(2);
const client = mqtt.connect(url, { clientId, clean: false, reconnectPeriod: 1000, resubscribe: false });
client.on("message", (_topic, payload) => console.log(payload.toString()));
client.on("error", () => {});
client.once("connect", () => client.subscribe("torture/#", { qos: Number(qos) }, () => console.log("subscribed")));
