"""What is wrong in a network of gateways, found in their configurations before any of them starts."""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from itertools import combinations
from pathlib import Path
from shlex import quote

from gateway.auth.filters import common, holds, split
from gateway.auth.rules import IDENTIFY, PUBLISH, WITHOUT_USER, Rule, fill
from gateway.config.schema import TcpConfig, WebSocketConfig
from gateway.network.disjoint import disjoint
from gateway.streams.names import in_rules
from host.server import parse_server
from tools.cli.network.paths import Paths, TwoPaths
from tools.cli.network.plan import Finding, Plan, PlannedLink, Site
from uplink.config.route import RouteConfig

PAIRS_SHOWN = 5


def findings_in(plan: Plan) -> list[Finding]:
    """Returns all findings in a network, in the order of its files."""
    places = {site.file: place for place, site in enumerate(plan.sites)}
    return sorted((one for look in LOOKS for one in look(plan)), key=lambda one: places[one.file])


def same_names(plan: Plan) -> Iterator[Finding]:
    """Two gateways with one name."""
    for site in plan.sites:
        other = plan.by_name[site.name]
        if other is not site:
            yield Finding(site.file, "name", f"{site.name!r} is the name in {other.file} too: give one another name")


def unknown_neighbours(plan: Plan) -> Iterator[Finding]:
    """Neighbours that none of the files is of, and neighbours that do not connect."""
    links = plan.links + plan.standing_in
    for link in links:
        if link.neighbour.name and not link.listening:
            text, is_warning = _unknown(plan, link.neighbour.name)
            yield link.finding(f"neighbour.{link.name_key}", text, is_warning=is_warning)
    dialled = {(link.dialling.name, link.other) for link in links}
    for site in plan.sites:
        for number, one in enumerate(site.config.neighbour):
            key = f"neighbour[{number}].name"
            if one.name not in plan.by_name:
                text, is_warning = _unknown(plan, one.name)
                yield Finding(site.file, key, text, is_warning)
            elif (one.name, site.name) not in dialled:
                text = f"no route in {plan.by_name[one.name].file} names {site.name!r}: add one, or take this table out"
                yield Finding(site.file, key, text, is_warning=True)


def _unknown(plan: Plan, name: str) -> tuple[str, bool]:
    """Returns what is to be said of a neighbour without a file, and whether it is a warning."""
    for site in plan.sites:
        if name.casefold() in (site.name.casefold(), Path(site.file).stem.casefold()):
            return f"{name!r}: the gateway in {site.file} has the name {site.name!r}: write that here, or there", False
    similar = get_close_matches(name, plan.by_name, n=1)
    meant = f"; or is {similar[0]!r} meant?" if similar else ""
    return f"{name!r}: none of these files is of a gateway with this name: check its file too{meant}", True


def differing_ends(plan: Plan) -> Iterator[Finding]:
    """Links whose ends differ in zone, hops or mode, so that the login is refused."""
    for link in plan.links + plan.standing_in:
        if link.listening:
            table, settings = link.listening.neighbour(link.dialling.name)
            for key in ("zone", "hops", "mode"):
                here, there = getattr(link.neighbour, key), getattr(settings, key)
                if here != there:
                    place = f"{table}.{key}" if "[" in table else f"no table [[neighbour]] for {link.dialling.name!r}"
                    text = f"{here!r}, but {there!r} in {link.listening.file} ({place}): make both the same"
                    yield link.finding(f"neighbour.{key}", text)


def other_ports(plan: Plan) -> Iterator[Finding]:
    """Routes to a port on which the neighbour does not listen."""
    for link in plan.links:
        if link.listening is None:
            continue
        there = [one.port for one in link.listening.config.listener if isinstance(one, TcpConfig | WebSocketConfig)]
        server = parse_server(link.route.broker)
        if server.socket:
            continue
        port = server.port
        if 0 not in there and port not in there:
            listens = f"on {', '.join(map(str, there))}" if there else "on no TCP port"
            text = f"port {port}, but in {link.listening.file} the gateway listens {listens}: write that port here"
            yield link.finding("broker", f"{text}, unless a proxy between them changes it", is_warning=True)


def differing_zones(plan: Plan) -> Iterator[Finding]:
    """Zones that are one-hop at one link and multi-hop at another."""
    seen: dict[str, PlannedLink] = {}
    told: set[str] = set()
    for link in plan.links:
        zone, hops = link.neighbour.zone, link.neighbour.hops
        first = seen.setdefault(zone, link)
        if hops != first.neighbour.hops and zone not in told:
            told.add(zone)
            text = (
                f"{hops!r} in zone {zone!r}, but {first.neighbour.hops!r} in {first.dialling.file} ({first.key}"
                ".neighbour.hops): give all links of the zone the same, or this link another zone"
            )
            yield link.finding("neighbour.hops", text)


def routes_to_one_neighbour(plan: Plan) -> Iterator[Finding]:
    """Two routes of a gateway to one neighbour, and a route that receives beside a neighbour's at its broker."""
    for link in repeated_links(plan):
        first = next(one for one in plan.links if (one.dialling, one.other) == (link.dialling, link.other))
        text = f"leads to {link.other!r} as {first.key} does, so that messages come twice: leave one of the two"
        yield link.finding("neighbour", text)
    for link in plan.links:
        site = link.dialling
        for number, route in enumerate(site.routes):
            if not isinstance(route, RouteConfig):
                continue
            if route.neighbour is None and route.subscribe and site.server_of(route) == site.server_of(link.route):
                text = f"what matches comes over {link.key} too, which leads to the same broker: leave one of the two"
                yield Finding(site.file, f"route[{number}].subscribe", text)


def repeated_links(plan: Plan) -> list[PlannedLink]:
    """Returns the links of gateways to neighbours to which earlier ones of their own lead."""
    seen: set[tuple[str, str]] = set()
    found = []
    for link in plan.links:
        ends = link.dialling.file, link.other
        if ends in seen:
            found.append(link)
        seen.add(ends)
    return found


def missing_rules(plan: Plan) -> Iterator[Finding]:
    """Rules that a neighbour needs to log in, and to send and receive."""
    for link in plan.links + plan.standing_in:
        site = link.listening
        if site is None:
            continue
        if link.route.tls and link.route.tls.certificate:
            text = f"it names the user at {site.name!r}, whose rules for this user were not looked at"
            yield link.finding("tls.certificate", text, is_warning=True)
        elif site.access and (lines := list(_rules_to_add(link, site))):
            text = f"for the route {link.route.name!r} in {link.dialling.file} these rules are missing"
            place = "in a file of rules" if site.config.acl is None else f"in {site.config.acl}"
            yield Finding(site.file, "acl", f"{text}, to add {place} ahead of rules that deny it: {'; '.join(lines)}")
    for site in plan.sites:
        if site.access is None:
            yield Finding(site.file, "acl", f"{site.config.acl} is not here: its rules were not looked at", True)


def _rules_to_add(link: PlannedLink, site: Site) -> Iterator[str]:
    assert site.access is not None
    user, gateway = link.route.user, link.dialling.name
    start = f"allow {quote(user) if user else WITHOUT_USER}"
    rights = site.access.permissions(user, link.name, "")
    rules = [one for one in site.access.rules or () if one.is_for(user)]
    if not rights.may_connect(link.name):
        yield f"{start} connect {quote(link.name)}"
    if not rights.may_be_neighbour(gateway):
        yield f"{start} neighbour {quote(gateway)}"
    if not any(one.allows and IDENTIFY in one.actions for one in rules) or not rights.may_identify(gateway):
        yield f"{start} identify *"
    if site.access.rules is not None:
        for stream in ("", *_streams_of(link, site)):
            there = rights.in_stream(stream)
            for topic_filter in link.route.sent or ("#",):
                if not _may_publish_some(rules, user, link.name, in_rules(stream, topic_filter)):
                    yield f"{start} publish {quote(in_rules(stream, topic_filter))}"
            for topic_filter in link.dialling.config.network.summary or ("#",):
                if not there.may_subscribe(topic_filter):
                    yield f"{start} subscribe {quote(in_rules(stream, topic_filter))}"


def _streams_of(link: PlannedLink, listening: Site) -> list[str]:
    """Returns the streams beside the default one that a link carries."""
    names = dict.fromkeys(one.name for site in (link.dialling, listening) for one in site.config.stream)
    return [name for name in names if _carries(link, name)]


def _may_publish_some(rules: list[Rule], user: str | None, client_id: str, topic_filter: str) -> bool:
    """Whether a rule allows to publish to a topic name that a filter matches: in a stream only a rule for streams."""
    wanted = split(topic_filter)
    allowed = (fill(one.what, user, client_id) for one in rules if one.allows and PUBLISH in one.actions)
    in_place = [levels for levels in allowed if levels and (wanted[0] != "$SYS" or levels[:2] == wanted[:2])]
    return any(common(levels, wanted) for levels in in_place)


def redundant_paths(plan: Plan) -> Iterator[Finding]:
    """Two paths to one gateway, so that messages come twice."""
    repeated = repeated_links(plan)
    links = {link.link: link for link in plan.links if link not in repeated}
    for found in Paths(links, plan.brokers).two_paths():
        closing = links[found.closing[0]]
        on_it = {end for path in found.paths for link, _ in path for end in (link.first, link.second)}
        names = ", ".join(link.name for link in found.closing)
        if on_it & plan.brokers:
            then = "gateways do not notice a circle through an ordinary broker"
        else:
            then = f"until then the gateways set {names} aside"
        yield closing.finding("neighbour", f"{found}: {_way_out(found)}; {then}")


def _way_out(found: TwoPaths) -> str:
    (last, *_) = found.closing
    if not last.zone.is_one_hop:
        return "take one of these links out"
    return f"let the zones share one gateway, or take one out of zone {last.zone.name}"


def zones_without_full_mesh(plan: Plan) -> Iterator[Finding]:
    """One-hop zones in which two gateways have no link, so that messages of the one never reach the other."""
    paths = Paths((link.link for link in plan.links), plan.brokers)
    zones: dict[str, list[PlannedLink]] = {}
    for link in plan.links:
        if link.neighbour.hops == "one":
            zones.setdefault(link.neighbour.zone, []).append(link)
    for zone, links in zones.items():
        members = sorted({end for link in links for end in (link.dialling.name, link.other)} - plan.brokers)
        reached = {one: paths.reached_from(one) for one in members}
        zone_paths = Paths(
            (link.link._replace(zone=link.link.zone._replace(is_one_hop=False)) for link in links), set()
        )
        together = {one: zone_paths.reached_from(one) for one in members}
        apart = [
            f"{one} and {other}"
            for one, other in combinations(members, 2)
            if other in together[one] and not (other in reached[one] and one in reached[other])
        ]
        if apart:
            shown = ", ".join(apart[:PAIRS_SHOWN]) + (
                f", and {more} more" if (more := len(apart) - PAIRS_SHOWN) > 0 else ""
            )
            text = f"zone {zone!r} has no link between {shown}, so their messages never reach each other: add a route"
            yield links[0].finding("neighbour.zone", f'{text}, or make the zone hops = "multi"')


def streams_apart(plan: Plan) -> Iterator[Finding]:
    """Streams that two gateways have and that a gateway between them has not, so that their messages never meet."""
    names = dict.fromkeys(one.name for site in plan.sites for one in site.config.stream)
    linked = [(link.dialling, link.listening, link) for link in plan.links if link.listening is not None]
    for name in names:
        holders = [site for site in plan.sites if any(one.name == name for one in site.config.stream)]
        carrying = [(one, other) for one, other, link in linked if _carries(link, name)]
        for site in holders[1:]:
            if site in _reached(holders[0], carrying):
                continue
            path = _reached(holders[0], [(one, other) for one, other, _ in linked]).get(site)
            if path is not None:
                between = next((one for one in path if not _has_stream(one, name)), site)
                way = " - ".join(one.name for one in path)
                text = (
                    f"stream {name!r} is at {holders[0].name!r} and {site.name!r}, and the path {way} does not carry it"
                )
                add = f'add [[stream]] with name = "{name}", or streams = "any" to [network]'
                if between is site:
                    add = "a route on the path has `neighbour.streams` without it: add it there"
                yield Finding(between.file, "stream", f"{text}: {add}")


def _has_stream(site: Site, name: str) -> bool:
    return site.config.network.streams == "any" or any(one.name == name for one in site.config.stream)


def _carries(link: PlannedLink, stream: str) -> bool:
    chosen = link.neighbour.streams
    ends = link.dialling, link.listening
    return (chosen is None or stream in chosen) and all(site is not None and _has_stream(site, stream) for site in ends)


def _reached(start: Site, links: list[tuple[Site, Site]]) -> dict[Site, list[Site]]:
    """Returns the gateways to which links lead from one, each with the path."""
    found = {start: [start]}
    waiting = [start]
    for site in waiting:
        for one, other in [*links, *((other, one) for one, other in links)]:
            if one is site and other not in found:
                found[other] = [*found[site], other]
                waiting.append(other)
    return found


def colliding_wildcards(plan: Plan) -> Iterator[Finding]:
    """Filters for ordinary brokers that overlap, and what becomes of them."""
    for link in plan.links:
        if link.neighbour.name is None:
            summary, own = link.dialling.config.network.summary, link.route.subscribe
            for wide in sorted(disjoint((*summary, *own)) - {*summary, *own}):
                narrow = sorted(one for one in {*summary, *own} if holds(split(wide), split(one)))
                text = (
                    f"{', '.join(map(repr, narrow))} match the same topic names, and {link.other} may send a message "
                    f"for each filter: it is asked for {wide!r} instead, which matches more. Write filters that do not "
                    "overlap"
                )
                key = "network.summary" if {*narrow} & {*summary} else f"{link.key}.subscribe"
                yield Finding(link.dialling.file, key, text, is_warning=True)


def interest_without_limit(plan: Plan) -> Iterator[Finding]:
    """Links for which messages are kept, without a limit, while the neighbour is away."""
    for link in plan.links:
        limits = link.route.max_messages, link.route.max_bytes
        bounded = any(holds(split(one.filter), split("#")) for one in link.dialling.config.topic)
        if link.neighbour.mode == "active-active" and limits == (None, None) and not bounded:
            text = (
                f"while {link.other!r} is away, what it wants waits without a limit until the store is full: "
                'set max_messages or max_bytes here, or [[topic]] with filter = "#"'
            )
            yield link.finding("max_messages", text, is_warning=True)


Look = Callable[[Plan], Iterator[Finding]]
LOOKS: tuple[Look, ...] = (
    same_names,
    unknown_neighbours,
    other_ports,
    differing_ends,
    differing_zones,
    routes_to_one_neighbour,
    missing_rules,
    redundant_paths,
    zones_without_full_mesh,
    streams_apart,
    colliding_wildcards,
    interest_without_limit,
)
