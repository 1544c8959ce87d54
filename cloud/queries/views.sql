-- The views over Holdfast's Delta tables: docs/reference/tables.md says what their columns mean.
--
-- Spark SQL and DuckDB both run this file as it is. It needs the names readings, ledger_rows (the Delta table `ledger`)
-- in the current schema, and a session whose time zone is UTC. Run again, it replaces the views.

-- The fewest intervals of the numbers that arrived: one begins where no interval before it reaches.
CREATE OR REPLACE VIEW ledger AS
SELECT origin, epoch, min(lo) AS lo, max(hi) AS hi
FROM (
    SELECT *, sum(CASE WHEN lo <= reached + 1 THEN 0 ELSE 1 END)
        OVER (PARTITION BY origin, epoch ORDER BY lo, hi) AS island
    FROM (
        SELECT *, max(hi) OVER (PARTITION BY origin, epoch ORDER BY lo, hi
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached
        FROM ledger_rows))
GROUP BY origin, epoch, island;

-- The numbers of an epoch begin at 1, so what is missing before the first interval is a gap as well.
CREATE OR REPLACE VIEW gaps AS
SELECT origin, epoch, before + 1 AS lo, lo - 1 AS hi, lo - before - 1 AS missing
FROM (SELECT *, lag(hi, 1, 0) OVER (PARTITION BY origin, epoch ORDER BY lo) AS before FROM ledger)
WHERE lo > before + 1;

CREATE OR REPLACE VIEW completeness AS
SELECT origin, epoch, first, last, arrived,
    greatest(numbers - arrived, 0) AS missing,
    arrived / numbers AS share
FROM (
    SELECT origin, epoch, min(lo) AS first, max(hi) AS last,
        CAST(sum(hi - lo + 1) AS BIGINT) AS arrived,
        max(hi) - least(min(lo), 1) + 1 AS numbers
    FROM ledger GROUP BY origin, epoch);

-- The readings by which a device gives UTC to earlier ones.
--
-- A device that learns UTC sends a reading `clock`: at this uptime of this boot it was this `time`. All readings of a
-- boot get UTC by their distance from one of its anchors: the first one after them, where there is one, because the
-- error grows with the distance, and an anchor after a step of the clock would carry the step back. An anchor serves the
-- uptimes above `after_ms`, up to `until_ms`; null is no limit. No row of `readings` is changed.
CREATE OR REPLACE VIEW anchors AS
SELECT origin, epoch, device, boot_id, uptime_ms, time, source, error_s,
    lag(uptime_ms) OVER boot AS after_ms,
    CASE WHEN lead(uptime_ms) OVER boot IS NULL THEN NULL ELSE uptime_ms END AS until_ms
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
CREATE OR REPLACE VIEW timeline AS
SELECT readings.*,
    CASE WHEN event_time_by <> 'device' AND anchors.time IS NOT NULL
        THEN anchors.time + (readings.uptime_ms - anchors.uptime_ms) * INTERVAL 1 MILLISECOND
        ELSE readings.event_time END AS utc,
    CASE WHEN event_time_by <> 'device' AND anchors.time IS NOT NULL THEN 'anchor' ELSE event_time_by END AS utc_by
FROM readings LEFT JOIN anchors
    ON readings.event_time_by <> 'device'
    AND readings.origin = anchors.origin AND readings.epoch = anchors.epoch
    AND readings.device = anchors.device AND readings.boot_id = anchors.boot_id
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

-- For each device and hour: the messages with readings that arrived, and those that should have. A gap has no times: its
-- messages are spread evenly between those of its neighbours.
CREATE OR REPLACE VIEW completeness_by_hour AS
WITH
messages AS (SELECT origin, epoch, seq, device, utc FROM timeline WHERE record = 0),
known AS (
    SELECT gaps.origin, gaps.epoch, gaps.lo, gaps.missing,
        CASE WHEN before.device IS NULL THEN after.device
            WHEN after.device IS NULL OR before.device = after.device THEN before.device END AS device,
        before.utc AS since, after.utc AS upto
    FROM gaps
    LEFT JOIN messages AS before
        ON before.origin = gaps.origin AND before.epoch = gaps.epoch AND before.seq = gaps.lo - 1
    LEFT JOIN messages AS after
        ON after.origin = gaps.origin AND after.epoch = gaps.epoch AND after.seq = gaps.hi + 1),
spread AS (
    SELECT *, CAST(floor((seconds + offset_s) / 3600) AS BIGINT) AS hours
    FROM (
        SELECT *, date_trunc('hour', since) AS first_hour,
            CAST(extract(MINUTE FROM since) * 60 + extract(SECOND FROM since) AS BIGINT) AS offset_s,
            CAST(extract(DAY FROM upto - since) * 86400 + extract(HOUR FROM upto - since) * 3600
                + extract(MINUTE FROM upto - since) * 60 + extract(SECOND FROM upto - since) AS BIGINT) AS seconds
        FROM (
            SELECT origin, device, missing, coalesce(since, upto) AS since,
                CASE WHEN upto > since THEN upto ELSE coalesce(since, upto) END AS upto
            FROM known))),
digits AS (SELECT 0 AS digit UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
    UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9),
hours AS (
    SELECT number
    FROM (
        SELECT a.digit + 10 * b.digit + 100 * c.digit + 1000 * d.digit + 10000 * e.digit AS number
        FROM digits AS a CROSS JOIN digits AS b CROSS JOIN digits AS c CROSS JOIN digits AS d CROSS JOIN digits AS e)
    WHERE number <= (SELECT max(hours) FROM spread)),
-- Of the missing messages, the k-th was made at k parts of missing + 1 of the time: how many before the end of an hour?
hourly AS (
    SELECT origin, device, first_hour + number * INTERVAL 1 HOUR AS hour,
        CASE WHEN number >= hours THEN missing
            ELSE least(missing, CAST(ceil(((number + 1) * 3600 - offset_s) * (missing + 1) / nullif(seconds, 0)) AS BIGINT) - 1) END
        - CASE WHEN number = 0 THEN 0
            ELSE least(missing, CAST(ceil((number * 3600 - offset_s) * (missing + 1) / nullif(seconds, 0)) AS BIGINT) - 1) END
            AS missing
    FROM spread JOIN hours ON number <= hours)
SELECT origin, device, hour, arrived + missing AS expected, arrived, arrived / (arrived + missing) AS share
FROM (
    SELECT origin, device, hour, CAST(sum(arrived) AS BIGINT) AS arrived, CAST(sum(missing) AS BIGINT) AS missing
    FROM (
        SELECT origin, device, date_trunc('hour', utc) AS hour, 1 AS arrived, 0 AS missing FROM messages
        UNION ALL
        SELECT origin, device, hour, 0 AS arrived, missing FROM hourly WHERE missing > 0)
    GROUP BY origin, device, hour);
