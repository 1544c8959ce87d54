"""The commands of `holdfast`, with what each needs and does."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """One command: its Typer app or function ("module:name"), a line about it, and the extra it needs ("": none)."""

    target: str
    summary: str
    extra: str


GROUPS = {
    "check": "Test a broker against the MQTT standards, and as a central broker.",
    "lab": "Measure Holdfast and break it: benchmarks, torture and tests.",
    "lab bench": "Measure speed, memory and bytes written, and compare with other software.",
    "device": "Build the firmware for a board, check its configuration, and look into a copy of its flash.",
    "uplink": "See and steer the routes of a gateway that runs.",
    "site": "Give devices and gateways their keys, certificates and accounts, and end them.",
    "gateway": "Run the gateway, the broker for devices, and look after its files.",
    "connector": "Try the devices of connectors.",
    "network": "Work on networks of gateways.",
    "multicast": "Receive multicast groups of a gateway.",
    "lab torture": "Try to make parts lose or repeat messages: power cuts, noise, kills, attacks.",
    "lander": "Write messages from a broker into landing files.",
    "cloud": "Bring landing files into tables, and report on them.",
}
# The command, its extra, its function in a module of `tools` (the command's last word, if none is named), a summary.
_TABLE = """
demo                 | tools   | lab.demo.command                        | Run the whole system here, break it, and count the readings in its tables.
query                | cloud   | cli.tables.query                        | Print rows of the tables that an SQL query selects.
replay               | -       | cli.replay                              | Publish the rows of a CSV file as readings of a device.
lab test             | dev     | cli.testing:app                         | Run Holdfast's own style checks and tests (from a checkout).
check broker         | -       | lab.check.broker                        | Check any broker against MQTT 3.1.1 and 5.0.
check central        | -       | lab.check.central                       | Try whether a broker may have custody of a gateway's messages.
lab bench flash      | tools   | lab.bench.flash.command                 | Count flash writes, erases and memory of the flash store, beside littlefs.
lab bench link       | -       | lab.bench.link.command                  | Measure throughput and recovery of the serial link.
lab bench device     | tools   | lab.bench.device.command                | Measure the heap and the speed of the firmware on MicroPython.
lab bench broker     | gateway | lab.bench.broker.command                | Measure how many publishes per second the gateway acknowledges.
lab bench fanout     | gateway | lab.bench.broker.fanout                 | Measure how many messages per second reach subscribers.
lab bench memory     | gateway | lab.bench.broker.memory                 | Measure the memory and the start-up time of the gateway.
lab bench storage    | gateway | lab.bench.broker.storage                | Count the bytes that the gateway writes to disk for each message.
lab bench uplink     | gateway | lab.bench.uplink.command                | Measure a gateway's route to the next broker, beside mosquitto's bridge.
lab bench network    | gateway | lab.bench.network.command               | Measure what a network of gateways carries, beside mosquitto's bridge.
lab bench cloud      | tools   | lab.bench.cloud.command                 | Measure the job beside a plain Spark copy.
lab bench batch      | tools   | lab.bench.batch.command                 | Measure what column batches save on the link.
lab bench connector  | tools   | lab.bench.connector.command             | Measure how a gateway reads serial lines and units, beside pymodbus.
lab torture wire     | -       | lab.torture.wire.wire                   | Feed corrupt packets to the MQTT decoders.
lab torture flash    | -       | lab.torture.flash.command               | Cut the power of the flash store at every byte it writes.
lab torture sensors  | -       | lab.torture.sensors.command             | Feed the drivers of sensors with faulty transfers.
lab torture link     | -       | lab.torture.wire.link                   | Run the serial link over lines that lose and corrupt bytes.
lab torture broker   | tools   | lab.torture.broker.command              | Send corrupt MQTT sessions to a gateway.
lab torture attacks  | gateway | lab.torture.attacks.command             | Attack a gateway while an ordinary client publishes.
lab torture store    | gateway | lab.torture.store.command               | Cut the power of the gateway's store at each write.
lab torture clients  | tools   | lab.torture.clients.command             | Kill a gateway between common MQTT clients.
lab torture board    | tools   | lab.torture.board.command               | Cut cable and power of boards while they are flashed.
lab torture device   | tools   | lab.torture.device.command              | Cut the power and the connections of devices on MicroPython.
lab torture uplink   | tools   | lab.torture.uplink.command              | Break line, processes, disk and clock of a route to the next broker.
lab torture network  | tools   | lab.torture.network.command             | Break lines and gateways of networks, while subscribers come and go.
lab torture lander   | tools   | lab.torture.lander.command              | Kill a lander and the mosquitto before it, and recount the tables.
lab torture cloud    | tools   | lab.torture.cloud.command               | Kill lander and job, cut their files, and recount the tables.
lab torture proof    | cloud   | lab.torture.proof.command               | Draw histories of losses and lies, and judge what the tables conclude.
lab torture receipts | tools   | lab.torture.receipts.command            | Lose messages behind a route that waits for receipts, and recount the tables.
lab torture all      | tools   | lab.torture.whole_way.command:whole_way | Break every hop from devices to tables, and recount the readings.
lab torture soak     | -       | lab.torture.device.soak                 | Send many messages through a device and watch its heap.
flash                | flash   | cli.board.command                       | Write everything to a board, and wait for its first reading.
flash                | flash   | cli.board.command                       | Write everything to a board, and wait for its first reading.
device build         | tools   | cli.web.command:build                   | Compile the firmware for a board, or make a page that writes it.
device new           | flash   | cli.new.command                         | Write a device's configuration: asks for what it needs.
device check-config  | -       | cli.device.check_config                 | Check a device's configuration before it goes on a board.
device partitions    | tools   | cli.device.partitions                   | Write an ESP32's partition table with room for the store.
device inspect       | -       | cli.device.inspect                      | Show what is stored in a copy of a device's flash.
device stubs         | -       | cli.device.stubs                        | Fetch a board's type stubs for an editor and a type checker.
site init            | flash   | cli.site.commands.init                  | Make the authority of a site.
site gateway         | flash   | cli.site.commands.gateway               | Give a gateway a certificate that the site's devices trust.
site device          | flash   | cli.site.commands.device                | Give devices certificates or accounts, and access rules.
site list            | flash   | cli.site.commands.listing:list_given    | List what a site has given.
site revoke          | flash   | cli.site.commands.revoke                | End what was given: certificate, account and access rules.
gateway run          | gateway | cli.gateway.process                     | Run a gateway.
gateway check-config | gateway | cli.gateway.check_config                | Check a configuration file without starting a gateway.
gateway forward      | gateway | cli.gateway.forward                     | Add a route to the next broker to a gateway's configuration.
gateway repair       | gateway | cli.gateway.repair:repair_store         | Repair a damaged message store.
gateway backup       | gateway | cli.gateway.backup:back_up              | Copy the message store of a gateway.
gateway restore      | gateway | cli.gateway.backup                      | Put a copy in the place of a message store.
gateway migrate      | gateway | cli.gateway.migrate                     | Move the streams of a gateway to the folders of another.
gateway new-epoch    | gateway | cli.gateway.backup                      | Begin a new epoch in a store that was restored by other means.
gateway devices      | gateway | cli.gateway.devices:list_devices        | List the devices that have connected to a gateway.
gateway seen         | gateway | cli.gateway.seen                        | Say that you have seen which messages a full store has dropped.
gateway quarantine   | gateway | cli.gateway.quarantine:list_notes       | List what a gateway could not read and has set aside.
gateway passwd       | gateway | cli.gateway.passwd                      | Add an account, change its password or delete it.
connector try        | gateway | cli.connector.attempt:attempt           | Read the devices of a gateway's connectors once.
connector scan       | gateway | cli.connector.scan                      | Find the units that answer Modbus on a port.
network check        | gateway | cli.network.check                       | Find what is wrong in a network of gateways before any of them starts.
network show         | gateway | cli.network.show                        | Show the links of a gateway, and what is wanted over them.
multicast listen     | -       | cli.multicast.listen                    | Print the messages of a multicast group, and what was lost.
uplink status        | gateway | cli.uplink.status                       | Show links and backlogs of the routes.
uplink refused       | gateway | cli.uplink.refused:list_refused         | List the messages that next brokers will never take.
uplink resend        | gateway | cli.uplink.refused                      | Send a route's refused messages again.
uplink discard       | gateway | cli.uplink.refused                      | Drop a route's refused messages.
uplink forget        | gateway | cli.uplink.forget                       | Give up what waits for a route that is no longer configured.
uplink export        | gateway | cli.uplink.carry                        | Write what waits for a route to a file, to carry it.
uplink import        | gateway | cli.uplink.carry:import_file            | Store the messages of a file that was exported.
lander run           | cloud   | cli.lander:app                          | Run a lander.
cloud ingest         | cloud   | cli.tables.ingest:app                   | Bring new landing files into the tables.
cloud receipts       | cloud   | cli.tables.receipts:publish             | Tell devices and gateways what the tables hold.
cloud report         | cloud   | cli.report.command                      | Write one HTML page about the tables.
cloud requarantine   | cloud   | cli.tables.anew:requarantine_messages   | Decode what is in quarantine again.
cloud maintain       | cloud   | cli.tables.maintain:maintain_tables     | Keep tables and landing files small, and forget devices.
cloud verify         | cloud   | cli.tables.verify:verify_tables         | Count the tables again, and look for faults.
cloud rebuild        | cloud   | cli.tables.anew:rebuild_tables          | Make all tables anew from the landing files.
"""  # noqa: E501 - a command a line


def _commands() -> dict[str, Command]:
    found = {}
    for line in _TABLE.strip().splitlines():
        path, extra, target, summary = map(str.strip, line.split("|"))
        module, _, function = target.partition(":")
        function = function or path.rpartition(" ")[2].replace("-", "_")
        found[path] = Command(f"tools.{module}:{function}", summary, extra.strip("-"))
    return found


COMMANDS = _commands()
