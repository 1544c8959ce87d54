-- The views over Holdfast's Delta tables: docs/reference/tables.md says what their columns mean.
--
-- Spark SQL and DuckDB both run this file as it is. It needs the tables in the current schema, with the name
-- ledger_rows for the Delta table `ledger`, and a session whose time zone is UTC. Run again, it replaces the views.

-- The fewest intervals of the numbers that arrived: one begins where no interval before it reaches.
--
-- Partitions are by `epoch` first. Spark compares the first eight bytes of a sort, and epochs differ there.
CREATE OR REPLACE VIEW ledger AS
SELECT origin, epoch, lo, hi
FROM (
    SELECT origin, epoch, lo, begins,
        coalesce(lead(CASE WHEN begins THEN reached ELSE greatest(reached, hi) END)
            OVER (PARTITION BY epoch, origin ORDER BY lo, hi, is_last), hi) AS hi
    FROM (
        SELECT *, reached IS NULL OR lo - 1 > reached AS begins
        FROM (
            SELECT origin, epoch, lo, hi,
                max(hi) OVER (PARTITION BY epoch, origin ORDER BY lo, hi
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached,
                lead(lo) OVER (PARTITION BY epoch, origin ORDER BY lo, hi) IS NULL AS is_last
            FROM ledger_rows))
    WHERE begins OR is_last)
WHERE begins;

-- What routes left out on purpose, by their filters and rules: the only messages that have not arrived and are not missing.
--
-- A route speaks of the origins of which it has handed on messages, and of no others.
CREATE OR REPLACE VIEW left_out AS
SELECT said.origin, said.epoch, lo, hi, said.gateway, said.route
FROM (
    SELECT origin, origin_epoch AS epoch, lo, hi, gateway, route FROM statement_left_out
    UNION ALL
    SELECT origin, origin_epoch AS epoch, first AS lo, last AS hi, gateway, route FROM statement_dropped
    WHERE reason = 'selected' AND first > 0 AND messages = last - first + 1) AS said
JOIN (SELECT DISTINCT origin, epoch, gateway, route FROM crossings) AS crossed
    ON said.origin = crossed.origin AND said.epoch = crossed.epoch
    AND said.gateway = crossed.gateway AND said.route = crossed.route;

-- What is missing, in pieces with one reason each.
--
-- A hole is a range of seqs that did not arrive and that no route left out: between two messages that arrived, before the
-- first one, or behind the last one if a statement knows of more. All of it is missing: nothing else explains it. Ranges
-- that a route has dropped cut holes into pieces. The rest of a hole is judged by what statements say of the numbers of
-- the link between its two neighbours.
--
-- Spark carries out a common table as often as it is named, so each is named as rarely as can be: what has two sides is
-- made two rows, counted with the intervals in one window, and put together again. Only a common table with random() is
-- carried out once, since its rows would differ otherwise: here all rows pass.
CREATE OR REPLACE VIEW gaps AS
WITH
sides AS (SELECT 1 AS side UNION ALL SELECT 2 AS side),
arrived AS (SELECT origin, epoch, lo, hi FROM ledger WHERE random() >= 0),
-- A route speaks of the origins of which it has handed on messages, and of no others.
crossed AS (SELECT * FROM (SELECT DISTINCT origin, epoch, gateway, route FROM crossings) WHERE random() >= 0),
counted AS (
    SELECT stated.origin, stated.origin_epoch AS epoch, stated.gateway, stated.route, stated.epoch AS link_epoch,
        statement, highest, messages, first, last
    FROM statement_origins AS stated JOIN crossed
        ON stated.origin = crossed.origin AND stated.origin_epoch = crossed.epoch
        AND stated.gateway = crossed.gateway AND stated.route = crossed.route),
-- Ranges that were dropped. A range may have grown since an earlier statement.
drops AS (
    SELECT stated.origin, stated.origin_epoch AS epoch, reason, stated.gateway, stated.route, first, max(last) AS last
    FROM statement_dropped AS stated JOIN crossed
        ON stated.origin = crossed.origin AND stated.origin_epoch = crossed.epoch
        AND stated.gateway = crossed.gateway AND stated.route = crossed.route
    WHERE first > 0
    GROUP BY stated.origin, stated.origin_epoch, reason, consumer, stated.gateway, stated.route, first
    HAVING random() >= 0),
-- Arrived messages cover seqs (kind 1), and what was left out (2). What is counted or was dropped (3) covers none, and may
-- have a higher seq than any of these. There is a hole before each interval, and one behind the last.
holes AS (
    SELECT origin, epoch, lo, hi, previous, next, previous IS NULL AS is_head, next IS NULL AS is_tail
    FROM (
        SELECT origin, epoch,
            least(CASE WHEN side = 1 THEN before ELSE greatest(before, hi) END, 9223372036854775806) + 1 AS lo,
            CASE WHEN side = 1 THEN lo - 1 ELSE top END AS hi,
            CASE WHEN side = 1 OR kind > 1 THEN previous ELSE greatest(coalesce(previous, 0), hi) END AS previous,
            CASE WHEN side = 1 THEN next END AS next
        FROM (
            -- The next arrived seq is that of a row behind. Few rows are left to be sorted the other way round.
            SELECT *, min(CASE WHEN kind = 1 THEN lo END) OVER (PARTITION BY epoch, origin
                ORDER BY lo DESC, kind DESC, hi DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS next
            FROM (
                SELECT origin, epoch, lo, hi, kind,
                    coalesce(max(hi) OVER so_far, 0) AS before,
                    max(CASE WHEN kind = 1 THEN hi END) OVER so_far AS previous,
                    max(top) OVER (PARTITION BY epoch, origin ORDER BY lo, kind, hi
                        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS top,
                    lag(kind) OVER (PARTITION BY epoch, origin ORDER BY lo, kind, hi) AS kind_before,
                    lead(lo) OVER (PARTITION BY epoch, origin ORDER BY lo, kind, hi) IS NULL AS is_last
                FROM (
                    SELECT origin, epoch, lo, hi, hi AS top, 1 AS kind FROM arrived
                    UNION ALL
                    SELECT said.origin, said.epoch, CASE WHEN kind = 2 THEN lo ELSE 0 END AS lo,
                        CASE WHEN kind = 2 THEN hi ELSE 0 END AS hi, hi AS top, kind
                    FROM (
                        SELECT origin, origin_epoch AS epoch, gateway, route, lo, hi, 2 AS kind FROM statement_left_out
                        UNION ALL
                        SELECT origin, origin_epoch AS epoch, gateway, route, first AS lo, last AS hi,
                            CASE WHEN reason = 'selected' AND messages = last - first + 1 THEN 2 ELSE 3 END AS kind
                        FROM statement_dropped WHERE first > 0
                        UNION ALL
                        SELECT origin, origin_epoch AS epoch, gateway, route, 0 AS lo, max(highest) AS hi, 3 AS kind
                        FROM statement_origins GROUP BY origin, origin_epoch, gateway, route) AS said
                    JOIN crossed
                        ON said.origin = crossed.origin AND said.epoch = crossed.epoch
                        AND said.gateway = crossed.gateway AND said.route = crossed.route)
                WINDOW so_far AS (PARTITION BY epoch, origin ORDER BY lo, kind, hi
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
            WHERE lo - 1 > before OR is_last OR (kind = 1 AND kind_before = 2))
        CROSS JOIN sides
        WHERE (side = 1 AND lo - 1 > before) OR (side = 2 AND is_last AND top > greatest(before, hi)))
    WHERE random() >= 0),
-- The links that tell something of a hole: those of one neighbour at the head and the tail, of both between. The numbers
-- of the hole's messages are above `below`, and up to `upto`.
told AS (
    SELECT origin, epoch, lo, hi, is_tail, gateway, route, link_epoch, min(hop) AS hop,
        coalesce(max(CASE WHEN side = 1 THEN number END), 0) AS below,
        min(CASE WHEN side = 2 THEN number - 1 END) AS upto
    FROM (
        -- Holes are few beside crossings: Spark sends them to each task, and does not shuffle the crossings.
        SELECT /*+ BROADCAST(neighbours) */ neighbours.origin, neighbours.epoch, neighbours.lo, neighbours.hi, is_head,
            is_tail, neighbours.side, gateway, route, link_epoch, hop, number
        FROM (
            SELECT *, CASE WHEN side = 1 THEN previous ELSE next END AS seq FROM holes CROSS JOIN sides) AS neighbours
        JOIN (
            SELECT origin, epoch, gateway, route, link_epoch, hop, side, CASE WHEN side = 1 THEN hi ELSE lo END AS seq,
                CASE WHEN side = 1 THEN last_number ELSE first_number END AS number
            FROM crossings CROSS JOIN sides) AS runs
            ON neighbours.origin = runs.origin AND neighbours.epoch = runs.epoch
            AND neighbours.side = runs.side AND neighbours.seq = runs.seq)
    GROUP BY origin, epoch, lo, hi, is_head, is_tail, gateway, route, link_epoch
    HAVING (is_head OR max(CASE WHEN side = 1 THEN 1 END) = 1) AND (is_tail OR max(CASE WHEN side = 2 THEN 1 END) = 1)),
-- A route with a backfill may still send what its live lane left out. A statement without `backfill` settles what it and
-- earlier ones of the route cover.
turns AS (
    SELECT *, max(CASE WHEN backfill THEN 0 ELSE turn END) OVER (PARTITION BY gateway, route) AS settled_turn,
        max(turn) OVER (PARTITION BY gateway, route) AS last_turn
    FROM (
        SELECT *, row_number() OVER (PARTITION BY gateway, route ORDER BY stated_at, seq) AS turn FROM statements)),
filling AS (SELECT DISTINCT gateway, route FROM turns WHERE last_turn > settled_turn),
-- What is known of the numbers of each link, as the fewest intervals, by kind: arrived, covered by statements, settled,
-- and waiting for an operator by the newest statement. Up to a number n in an interval, n + rest numbers are in the
-- intervals of a kind.
spans AS (
    SELECT kind, gateway, route, epoch, lo, hi,
        CAST(1 - lo + coalesce(sum(hi - lo + 1) OVER (PARTITION BY kind, gateway, route, epoch ORDER BY lo
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS BIGINT) AS rest
    FROM (
        SELECT kind, gateway, route, epoch, min(lo) AS lo, max(hi) AS hi
        FROM (
            SELECT *, sum(CASE WHEN lo - 1 <= reached THEN 0 ELSE 1 END)
                OVER (PARTITION BY kind, gateway, route, epoch ORDER BY lo, hi) AS island
            FROM (
                SELECT *, max(hi) OVER (PARTITION BY kind, gateway, route, epoch ORDER BY lo, hi
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached
                FROM (
                    SELECT 'arrived' AS kind, gateway, route, epoch, lo, hi FROM links
                    UNION ALL
                    SELECT CASE WHEN side = 1 THEN 'stated' ELSE 'settled' END AS kind, gateway, route, epoch,
                        first AS lo, last AS hi
                    FROM turns CROSS JOIN sides WHERE last >= first AND (side = 1 OR turn <= settled_turn)
                    UNION ALL
                    SELECT 'waiting' AS kind, gateway, route, epoch, lo, hi
                    FROM (
                        SELECT *, max(statement) OVER (PARTITION BY gateway, route, epoch) AS newest
                        FROM (
                            SELECT gateway, route, epoch, statement, lo, hi FROM statement_refused
                            UNION ALL
                            SELECT gateway, route, epoch, statement, CAST(NULL AS BIGINT) AS lo,
                                CAST(NULL AS BIGINT) AS hi
                            FROM statements))
                    WHERE statement = newest AND lo IS NOT NULL)))
        GROUP BY kind, gateway, route, epoch, island)),
-- Of the numbers in a hole: how many did not arrive, and how many wait for an operator.
weighed AS (
    SELECT origin, epoch, lo, hop, gateway, route, upto, stated_to, settled_to,
        coalesce(upto, arrived_to) - below - (arrived_up - arrived_below) AS numbers,
        waiting_up - waiting_below AS waiting
    FROM (
        SELECT origin, epoch, lo, hop, gateway, route, link_epoch, is_tail, below, upto, stated_to, settled_to, arrived_to,
            max(CASE WHEN side = 1 THEN arrived ELSE 0 END) AS arrived_below,
            max(CASE WHEN side = 2 THEN arrived ELSE 0 END) AS arrived_up,
            max(CASE WHEN side = 1 THEN waiting ELSE 0 END) AS waiting_below,
            max(CASE WHEN side = 2 THEN waiting ELSE 0 END) AS waiting_up
        FROM (
            SELECT *,
                CASE WHEN arrived_hi IS NULL THEN 0 ELSE least(number, arrived_hi) + arrived_rest END AS arrived,
                CASE WHEN waiting_hi IS NULL THEN 0 ELSE least(number, waiting_hi) + waiting_rest END AS waiting
            FROM (
                SELECT origin, epoch, lo, hop, gateway, route, link_epoch, is_tail, below, upto, side, number,
                    max(CASE WHEN kind = 'arrived' THEN span_hi END) OVER so_far AS arrived_hi,
                    min(CASE WHEN kind = 'arrived' THEN rest END) OVER so_far AS arrived_rest,
                    max(CASE WHEN kind = 'waiting' THEN span_hi END) OVER so_far AS waiting_hi,
                    min(CASE WHEN kind = 'waiting' THEN rest END) OVER so_far AS waiting_rest,
                    max(CASE WHEN kind = 'stated' THEN span_hi END) OVER (PARTITION BY gateway, route, link_epoch)
                        AS stated_to,
                    max(CASE WHEN kind = 'settled' THEN span_hi END) OVER (PARTITION BY gateway, route, link_epoch)
                        AS settled_to,
                    max(CASE WHEN kind = 'arrived' THEN span_hi END) OVER (PARTITION BY gateway, route, link_epoch)
                        AS arrived_to
                FROM (
                    SELECT origin, epoch, lo, hop, gateway, route, link_epoch, is_tail, below, upto, side,
                        CASE WHEN side = 1 THEN below ELSE coalesce(upto, 9223372036854775807) END AS number,
                        'hole' AS kind, CAST(NULL AS BIGINT) AS span_hi, CAST(NULL AS BIGINT) AS rest
                    FROM told CROSS JOIN sides
                    WHERE upto IS NULL OR upto >= below
                    UNION ALL
                    SELECT CAST(NULL AS STRING) AS origin, CAST(NULL AS STRING) AS epoch, CAST(NULL AS BIGINT) AS lo,
                        CAST(NULL AS INT) AS hop, gateway, route, epoch AS link_epoch, FALSE AS is_tail,
                        CAST(NULL AS BIGINT) AS below, CAST(NULL AS BIGINT) AS upto, CAST(NULL AS INT) AS side,
                        lo AS number, kind, hi AS span_hi, rest
                    FROM spans)
                WINDOW so_far AS (PARTITION BY gateway, route, link_epoch
                    ORDER BY number, CASE WHEN kind = 'hole' THEN 1 ELSE 0 END
                    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW))
            WHERE side IS NOT NULL)
        GROUP BY origin, epoch, lo, hop, gateway, route, link_epoch, is_tail, below, upto, stated_to, settled_to, arrived_to)),
-- The first link of the way decides. Where another one has all its numbers, a later route did not take the messages.
judges AS (
    SELECT * FROM (
        SELECT *, min(numbers) OVER (PARTITION BY epoch, origin, lo) AS fewest,
            row_number() OVER (PARTITION BY epoch, origin, lo
                ORDER BY hop, coalesce(numbers, 0) DESC, gateway, route) AS place
        FROM weighed)
    WHERE place = 1),
-- What statements say of a hole, by route: how many of the messages that they count around it did not arrive.
claims AS (
    SELECT origin, epoch, lo, gateway, route,
        CAST(least(sum(CAST(greatest(messages - arrived, 0) AS DOUBLE)), 9e18) AS BIGINT) AS missing
    FROM (
        SELECT origin, epoch, lo, gateway, route, link_epoch, statement, messages, first,
            max(CASE WHEN side = 2 THEN known ELSE 0 END) - max(CASE WHEN side = 1 THEN known ELSE 0 END) AS arrived
        FROM (
            SELECT *, CASE WHEN reached IS NULL THEN 0 ELSE least(seq, reached) + so_far END AS known
            FROM (
                SELECT origin, epoch, lo, gateway, route, link_epoch, statement, messages, first, side, seq,
                    max(span_hi) OVER up_to AS reached, min(rest) OVER up_to AS so_far
                FROM (
                    SELECT origin, epoch, lo, gateway, route, link_epoch, statement, messages, first, side,
                        CASE WHEN side = 1 THEN first - 1 ELSE last END AS seq,
                        CAST(NULL AS BIGINT) AS span_hi, CAST(NULL AS BIGINT) AS rest
                    FROM (
                        SELECT DISTINCT holes.origin, holes.epoch, lo, gateway, route, link_epoch, statement, messages,
                            first, last
                        FROM holes JOIN counted ON counted.origin = holes.origin AND counted.epoch = holes.epoch
                        WHERE messages > 0 AND first <= hi AND last >= lo)
                    CROSS JOIN sides
                    UNION ALL
                    SELECT origin, epoch, CAST(NULL AS BIGINT) AS lo, CAST(NULL AS STRING) AS gateway,
                        CAST(NULL AS STRING) AS route, CAST(NULL AS STRING) AS link_epoch,
                        CAST(NULL AS BIGINT) AS statement, CAST(NULL AS BIGINT) AS messages,
                        CAST(NULL AS BIGINT) AS first, CAST(NULL AS INT) AS side,
                        lo AS seq, hi AS span_hi,
                        CAST(1 - lo + coalesce(sum(hi - lo + 1) OVER (PARTITION BY epoch, origin ORDER BY lo
                            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS BIGINT) AS rest
                    FROM arrived)
                WINDOW up_to AS (PARTITION BY epoch, origin ORDER BY seq, CASE WHEN side IS NULL THEN 0 ELSE 1 END
                    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW))
            WHERE side IS NOT NULL)
        GROUP BY origin, epoch, lo, gateway, route, link_epoch, statement, messages, first)
    GROUP BY origin, epoch, lo, gateway, route),
-- Ranges that were dropped cut a hole into pieces. A cut that is there twice makes no piece of its own.
pieces AS (
    SELECT * FROM (
        SELECT origin, epoch, hole, previous, next, cut AS lo,
            lead(cut, 1, hole_hi + 1) OVER (PARTITION BY epoch, origin, hole ORDER BY cut) - 1 AS hi
        FROM (
            SELECT holes.origin, holes.epoch, lo AS hole, hi AS hole_hi, previous, next,
                CASE WHEN side = 1 AND first > lo THEN first WHEN side = 2 AND last < hi THEN last + 1 ELSE lo END AS cut
            FROM holes LEFT JOIN drops
                ON holes.origin = drops.origin AND holes.epoch = drops.epoch AND first <= hi AND last >= lo
            CROSS JOIN (SELECT side FROM sides UNION ALL SELECT 3 AS side) AS cuts))
    WHERE lo <= hi),
reasons AS (
    SELECT * FROM (
        SELECT pieces.*, reason, gateway, route,
            row_number() OVER (PARTITION BY pieces.epoch, pieces.origin, pieces.hole, pieces.lo
                ORDER BY last - first DESC, reason, gateway, route) AS place
        FROM pieces LEFT JOIN drops ON pieces.origin = drops.origin AND pieces.epoch = drops.epoch
            AND first <= pieces.lo AND last >= pieces.hi)
    WHERE place = 1),
verdicts AS (
    SELECT reasons.origin, reasons.epoch, reasons.lo, reasons.hi, reasons.hi - reasons.lo + 1 AS size, previous, next,
        reasons.reason, reasons.gateway AS dropped_at, reasons.route AS dropped_by,
        judges.gateway AS judge_gateway, judges.route AS judge_route, numbers, fewest, upto, stated_to,
        CASE WHEN filling.route IS NOT NULL AND next IS NOT NULL AND coalesce(upto >= settled_to, TRUE) THEN 1 ELSE 0 END
            AS is_filling,
        coalesce(waiting, 0) AS waiting, claims.gateway AS claim_gateway, claims.route AS claim_route,
        claims.missing AS claimed,
        row_number() OVER (PARTITION BY reasons.epoch, reasons.origin, reasons.hole, reasons.lo
            ORDER BY claims.missing DESC, claims.gateway, claims.route) AS place
    FROM reasons
    LEFT JOIN judges
        ON judges.origin = reasons.origin AND judges.epoch = reasons.epoch AND judges.lo = reasons.hole
    LEFT JOIN claims
        ON claims.origin = reasons.origin AND claims.epoch = reasons.epoch AND claims.lo = reasons.hole
        AND (judges.gateway IS NULL OR (claims.gateway = judges.gateway AND claims.route = judges.route))
    LEFT JOIN filling ON filling.gateway = coalesce(judges.gateway, claims.gateway)
        AND filling.route = coalesce(judges.route, claims.route))
SELECT origin, epoch, lo, hi, size AS missing,
    CASE WHEN next IS NULL THEN 'tail' WHEN previous IS NULL THEN 'head' ELSE 'middle' END AS place,
    CASE WHEN reason IS NOT NULL THEN reason
        WHEN is_filling = 1 AND coalesce(claimed, 0) = 0 THEN 'in transit'
        WHEN numbers = 0 AND next IS NOT NULL THEN 'unknown'
        WHEN fewest = 0 AND numbers > 0 THEN 'unknown'
        WHEN waiting > 0 AND waiting >= numbers THEN 'in transit'
        WHEN waiting > 0 THEN 'unknown'
        WHEN claimed >= size THEN 'lost'
        WHEN claimed >= 0 THEN 'unknown'
        WHEN stated_to < upto THEN 'in transit'
        ELSE 'unknown' END AS reason,
    coalesce(dropped_at, judge_gateway, claim_gateway) AS gateway,
    coalesce(dropped_by, judge_route, claim_route) AS route,
    previous, next
FROM verdicts
WHERE place = 1;

-- For each origin and epoch: what arrived, of what should have. What a route has left out on purpose is not missing. A
-- message whose identity belongs to another one has no seq of its own, and no reading: it is one of `conflicts`.
CREATE OR REPLACE VIEW completeness AS
SELECT origin, epoch, first, last, arrived, missing, arrived / (arrived + missing + conflicts) AS share, conflicts
FROM (
    SELECT origin, epoch, min(first) AS first, max(last) AS last, CAST(sum(arrived) AS BIGINT) AS arrived,
        CAST(sum(missing) AS BIGINT) AS missing, CAST(sum(conflict) AS BIGINT) AS conflicts
    FROM (
        SELECT origin, epoch, lo AS first, hi AS last, hi - lo + 1 AS arrived, 0 AS missing, 0 AS conflict FROM ledger
        UNION ALL
        SELECT origin, epoch, CAST(NULL AS BIGINT) AS first, hi AS last, 0 AS arrived, missing, 0 AS conflict
        FROM gaps
        UNION ALL
        SELECT origin, epoch, CAST(NULL AS BIGINT) AS first, CAST(NULL AS BIGINT) AS last, 0 AS arrived, 0 AS missing,
            1 AS conflict
        FROM quarantine WHERE kind = 'conflict')
    GROUP BY origin, epoch);

-- The readings by which a device gives UTC to earlier ones.
--
-- A device that learns UTC sends a reading `clock`: at this uptime of this boot it was this `time`. All readings of a
-- boot get UTC by their distance from one of its anchors: the first one after them, where there is one, because the
-- error grows with the distance, and an anchor after a step of the clock would carry the step back. An anchor serves the
-- uptimes above `after_ms`, up to `until_ms`; null is no limit. No row of `readings` is changed.
CREATE OR REPLACE VIEW anchors AS
SELECT origin, epoch, device, boot_id, uptime_ms, time, source, error_s,
    lag(uptime_ms) OVER boot AS after_ms,
    CASE WHEN lead(uptime_ms) OVER boot IS NULL THEN NULL ELSE uptime_ms END AS until_ms,
    CAST(row_number() OVER boot AS INT) AS place
FROM (
    SELECT origin, epoch, seq, device, boot_id, max(uptime_ms) AS uptime_ms, max(time) AS time,
        max(value_string) FILTER (WHERE metric = 'clock') AS source,
        max(value) FILTER (WHERE metric = 'clock_error') AS error_s
    FROM readings
    WHERE metric IN ('clock', 'clock_error') AND event_time_by = 'device' AND boot_id IS NOT NULL
    GROUP BY origin, epoch, seq, device, boot_id)
WHERE source IS NOT NULL
WINDOW boot AS (PARTITION BY origin, epoch, device, boot_id ORDER BY uptime_ms, seq);

-- The readings with `utc`, and `utc_by`: whether the device, an anchor, the gateway or the lander gave it.
--
-- A device may have many anchors and many readings in one boot, and each reading cannot be compared with each anchor. So
-- where a boot has more than eight, one pass in the order of uptimes finds the anchor of each moment with a reading.
CREATE OR REPLACE VIEW timeline AS
WITH
-- Anchors of boots with few are all in slot 0; of boots with many, each has a slot of its own.
slots AS (
    SELECT *, CASE WHEN max(place) OVER (PARTITION BY origin, epoch, device, boot_id) > 8 THEN place ELSE 0 END AS slot
    FROM anchors),
busy AS (SELECT origin, epoch, device, boot_id FROM slots WHERE slot = 9),
moments AS (
    SELECT origin, epoch, device, boot_id, uptime_ms, is_reading,
        coalesce(
            min(slot) OVER (PARTITION BY origin, epoch, device, boot_id ORDER BY uptime_ms DESC),
            max(slot) OVER (PARTITION BY origin, epoch, device, boot_id)) AS slot
    FROM (
        SELECT DISTINCT origin, epoch, device, boot_id, uptime_ms, CAST(NULL AS INT) AS slot, TRUE AS is_reading
        FROM readings JOIN busy USING (origin, epoch, device, boot_id)
        WHERE event_time_by <> 'device' AND uptime_ms IS NOT NULL
        UNION ALL
        SELECT origin, epoch, device, boot_id, uptime_ms, slot, FALSE AS is_reading FROM slots WHERE slot > 0))
SELECT readings.*,
    CASE WHEN event_time_by <> 'device' AND slots.time IS NOT NULL
        THEN slots.time + (readings.uptime_ms - slots.uptime_ms) * INTERVAL 1 MILLISECOND
        ELSE readings.event_time END AS utc,
    CASE WHEN event_time_by <> 'device' AND slots.time IS NOT NULL THEN 'anchor' ELSE event_time_by END AS utc_by
FROM readings
    LEFT JOIN moments
        ON readings.event_time_by <> 'device' AND is_reading
        AND readings.origin = moments.origin AND readings.epoch = moments.epoch
        AND readings.device = moments.device AND readings.boot_id = moments.boot_id
        AND readings.uptime_ms = moments.uptime_ms
    LEFT JOIN slots
        ON readings.event_time_by <> 'device' AND readings.uptime_ms IS NOT NULL
        AND readings.origin = slots.origin AND readings.epoch = slots.epoch
        AND readings.device = slots.device AND readings.boot_id = slots.boot_id
        AND coalesce(moments.slot, 0) = slots.slot
        AND (after_ms IS NULL OR readings.uptime_ms > after_ms)
        AND (until_ms IS NULL OR readings.uptime_ms <= until_ms);

-- The last reading of each metric.
CREATE OR REPLACE VIEW latest AS
SELECT origin, device, metric, unit, utc, utc_by, value, value_string, value_bool, value_data, epoch, seq, record
FROM (
    SELECT *, row_number() OVER (PARTITION BY origin, device, metric ORDER BY utc DESC, seq DESC, record DESC) AS place
    FROM timeline)
WHERE place = 1;

-- The devices that have sent readings.
CREATE OR REPLACE VIEW devices AS
SELECT origin, device, count(DISTINCT metric) AS metrics, count(*) AS readings, min(utc) AS first, max(utc) AS last,
    max(received_at) AS last_received
FROM timeline
GROUP BY origin, device;

-- The numbers of each hour.
CREATE OR REPLACE VIEW readings_hourly AS
SELECT origin, device, metric, unit, date_trunc('hour', utc) AS hour, count(*) AS readings,
    min(value) AS lowest, avg(value) AS mean, max(value) AS highest
FROM timeline
WHERE value IS NOT NULL
GROUP BY origin, device, metric, unit, date_trunc('hour', utc);

-- For each device and hour: the messages with readings that arrived, and the ones that should have. A gap has no times: its
-- messages are spread evenly between the times of its neighbours; behind the last message, up to the statement. Of the hours
-- behind a device's last message, up to the last word of any gateway, it is not known what should have arrived. Conflicts
-- should have arrived under numbers of their own; they have the hour in which they came, and the device of the message
-- whose identity they have.
CREATE OR REPLACE VIEW completeness_by_hour AS
WITH
messages AS (SELECT origin, epoch, seq, device, utc FROM timeline WHERE record = 0),
stated AS (
    SELECT origin, origin_epoch AS epoch, highest AS seq, stated_at FROM statement_origins
    UNION ALL
    SELECT origin, origin_epoch AS epoch, last AS seq, stated_at FROM statement_dropped WHERE first > 0),
known AS (
    SELECT missed.origin, missed.missing, CASE WHEN min(device) = max(device) THEN min(device) END AS device,
        min(CASE WHEN side = 1 THEN utc END) AS since,
        coalesce(min(CASE WHEN side = 2 THEN utc END), min(CASE WHEN place = 'tail' THEN stated_at END)) AS upto
    FROM (
        SELECT origin, epoch, lo, hi, missing, place, side, CASE WHEN side = 1 THEN previous ELSE next END AS seq
        FROM gaps CROSS JOIN (SELECT 1 AS side UNION ALL SELECT 2 AS side) AS sides) AS missed
    LEFT JOIN messages
        ON messages.origin = missed.origin AND messages.epoch = missed.epoch AND messages.seq = missed.seq
    LEFT JOIN stated
        ON stated.origin = missed.origin AND stated.epoch = missed.epoch AND stated.seq >= missed.hi AND place = 'tail'
    GROUP BY missed.origin, missed.epoch, missed.lo, missed.missing),
spread AS (
    SELECT *, least(hours, 999) AS parts
    FROM (
        SELECT *, CAST(floor((seconds + offset_s) / 3600) AS BIGINT) AS hours
        FROM (
            SELECT *, date_trunc('hour', since) AS first_hour,
                CAST(extract(MINUTE FROM since) * 60 + extract(SECOND FROM since) AS BIGINT) AS offset_s,
                CAST(extract(DAY FROM upto - since) * 86400 + extract(HOUR FROM upto - since) * 3600
                    + extract(MINUTE FROM upto - since) * 60 + extract(SECOND FROM upto - since) AS BIGINT) AS seconds
            FROM (
                SELECT origin, device, CAST(missing AS DOUBLE) AS missing, coalesce(since, upto) AS since,
                    CASE WHEN upto > since THEN upto ELSE coalesce(since, upto) END AS upto
                FROM known)))),
digits AS (SELECT 0 AS digit UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
    UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9),
numbers AS (
    SELECT a.digit + 10 * b.digit + 100 * c.digit AS number
    FROM digits AS a CROSS JOIN digits AS b CROSS JOIN digits AS c),
-- Some hours of a gap, each with the next one: all of them where these are few. A gap can last for decades, by the word of
-- its device, and a device can have as many gaps as it has messages.
steps AS (
    SELECT *,
        CASE WHEN number = 0 THEN 0 ELSE CAST(floor(number * hours / nullif(parts, 0)) AS BIGINT) END AS from_hour,
        CASE WHEN number < parts THEN CAST(floor((number + 1) * hours / nullif(parts, 0)) AS BIGINT) END AS to_hour
    FROM spread JOIN numbers ON number <= parts),
-- Of the missing messages, the k-th was made at k parts of missing + 1 of the time: how many before the end of a step?
-- All is counted in doubles, since a device can name any seq, and the sum of the missing ones is beyond what BIGINT holds.
hourly AS (
    SELECT origin, device, first_hour + from_hour * INTERVAL 1 HOUR AS hour,
        CASE WHEN to_hour IS NULL THEN missing
            ELSE least(missing, ceil((to_hour * 3600 - offset_s) * (missing + 1) / nullif(seconds, 0)) - 1) END
        - CASE WHEN number = 0 THEN 0
            ELSE least(missing, ceil((from_hour * 3600 - offset_s) * (missing + 1) / nullif(seconds, 0)) - 1) END
            AS missing
    FROM steps),
silent AS (
    SELECT origin, device, last_hour,
        CAST(extract(DAY FROM upto - last_hour) * 24 + extract(HOUR FROM upto - last_hour) AS BIGINT) AS hours
    FROM (SELECT origin, device, max(date_trunc('hour', utc)) AS last_hour FROM messages GROUP BY origin, device) AS said
    CROSS JOIN (
        SELECT date_trunc('hour', max(told)) AS upto
        FROM (SELECT max(received_at) AS told FROM readings UNION ALL SELECT max(stated_at) AS told FROM statements)))
SELECT origin, device, hour, CASE WHEN known > 0 THEN arrived + missing + conflicts END AS expected, arrived,
    CASE WHEN known > 0 THEN arrived / (arrived + missing + conflicts) END AS share, conflicts
FROM (
    SELECT origin, device, hour, sum(known) AS known, CAST(sum(arrived) AS BIGINT) AS arrived,
        CAST(least(sum(missing), 9e18) AS BIGINT) AS missing, CAST(sum(conflict) AS BIGINT) AS conflicts
    FROM (
        SELECT origin, device, date_trunc('hour', utc) AS hour, 1 AS known, 1 AS arrived, 0 AS missing, 0 AS conflict
        FROM messages
        UNION ALL
        SELECT origin, device, hour, 1 AS known, 0 AS arrived, missing, 0 AS conflict FROM hourly WHERE missing > 0
        UNION ALL
        SELECT quarantine.origin, device, date_trunc('hour', coalesce(received_at, landed_at)) AS hour, 1 AS known,
            0 AS arrived, 0 AS missing, 1 AS conflict
        FROM quarantine LEFT JOIN messages
            ON messages.origin = quarantine.origin AND messages.epoch = quarantine.epoch
            AND messages.seq = quarantine.seq
        WHERE kind = 'conflict'
        UNION ALL
        SELECT origin, device, last_hour + (hours - number) * INTERVAL 1 HOUR AS hour, 0 AS known, 0 AS arrived,
            0 AS missing, 0 AS conflict
        FROM silent JOIN numbers ON number < hours)
    GROUP BY origin, device, hour);
