// The client of Improv's own makers, as a browser runs it, at a serial port: improv_client.mjs SDK PORT SSID PASSWORD…
// For each pair of SSID and PASSWORD it sends these settings. It prints what it was told, as JSON.
import { constants, openSync } from "node:fs";
import { Readable } from "node:stream";
import { ReadStream } from "node:tty";

const [sdk, path, ...settings] = process.argv.slice(2);
const { ImprovSerial } = await import(`${sdk}/serial.js`);
const line = new ReadStream(openSync(path, constants.O_RDWR | constants.O_NOCTTY));
line.setRawMode(true);
const writer = { write: async (data) => line.write(data), releaseLock() {} };
const port = { readable: Readable.toWeb(line), writable: { getWriter: () => writer } };
const silent = { log() {}, debug() {}, error() {} };
const client = new ImprovSerial(port, silent);
const told = { info: await client.initialize(60000), state: client.state, networks: await client.scan(), joined: [] };
while (settings.length) {
  const [ssid, password] = settings.splice(0, 2);
  try {
    await client.provision(ssid, password, 45000);
    told.joined.push(client.state);
  } catch (error) {
    told.joined.push(String(error));
  }
}
console.log(JSON.stringify(told));
process.exit(0);
