"""UTC for readings whose device did not know it yet, as SQL over the view `readings`; no row is changed for it.

A device that learns UTC sends an anchor: a reading `clock` that has `time`, and says with which uptime of which boot
that goes together. All that a boot measured has UTC by its distance from one of the boot's anchors: the first that
came after it, where there is one, because an error grows with the distance and anchors after a step of the clock
would carry the step back.
"""

ANCHORS = """
    SELECT origin, epoch, device, boot_id, uptime_ms, time, source, error_s,
        lag(uptime_ms) OVER boot AS after_ms,
        CASE WHEN lead(uptime_ms) OVER boot IS NULL THEN NULL ELSE uptime_ms END AS until_ms
    FROM (
        SELECT origin, epoch, seq, device, boot_id, max(uptime_ms) AS uptime_ms, max(time) AS time,
            max(value_string) FILTER (WHERE metric = 'clock') AS source,
            max(value) FILTER (WHERE metric = 'clock_error') AS error_s
        FROM readings
        WHERE metric IN ('clock', 'clock_error') AND time IS NOT NULL AND boot_id IS NOT NULL
        GROUP BY origin, epoch, seq, device, boot_id)
    WHERE source IS NOT NULL
    WINDOW boot AS (PARTITION BY origin, epoch, device, boot_id ORDER BY uptime_ms, seq)"""
"""View `anchors`: each with the uptimes that it serves: those above `after_ms`, up to `until_ms`; null is no limit."""

TIMELINE = """
    SELECT readings.*,
        coalesce(
            readings.time,
            anchors.time + make_dt_interval(0, 0, 0, (readings.uptime_ms - anchors.uptime_ms) / 1000)) AS utc,
        CASE WHEN readings.time IS NOT NULL THEN 'device' WHEN anchors.time IS NOT NULL THEN 'anchor' END AS utc_by
    FROM readings LEFT JOIN anchors
        ON readings.time IS NULL AND readings.origin = anchors.origin AND readings.epoch = anchors.epoch
        AND readings.device = anchors.device AND readings.boot_id = anchors.boot_id
        AND (after_ms IS NULL OR readings.uptime_ms > after_ms)
        AND (until_ms IS NULL OR readings.uptime_ms <= until_ms)"""
"""View `timeline`: the readings with `utc` and whose it is."""
