-- Fire watch over generated streams: penstock run examples/sensors.sql --for 30s
--
-- Spark's rate source numbers its rows, at the time they are made. The number stands in for a sensor's reading:
-- number % 40 is the location, and (number * 7919) % 97 the value. Your own streams have real columns; then the
-- conditions read t.location = h.location AND t.value > 90.

CREATE STREAM temperature (timestamp TIMESTAMP, value BIGINT,
    WATERMARK FOR timestamp AS timestamp - INTERVAL 2 SECONDS)
USING rate OPTIONS (rowsPerSecond 80);

CREATE STREAM humidity (timestamp TIMESTAMP, value BIGINT,
    WATERMARK FOR timestamp AS timestamp - INTERVAL 2 SECONDS)
USING rate OPTIONS (rowsPerSecond 80);

CREATE STREAM smoke (timestamp TIMESTAMP, value BIGINT,
    WATERMARK FOR timestamp AS timestamp - INTERVAL 2 SECONDS)
USING rate OPTIONS (rowsPerSecond 5);

-- All pairs of a temperature and a humidity at one location, less than 10 seconds apart.
CREATE QUERY all_pairs AS
SELECT t.timestamp, t.value % 40 AS location, t.value * 7919 % 97 AS temperature, h.value * 7919 % 97 AS humidity
FROM temperature t [RANGE 10 SECONDS], humidity h [RANGE 10 SECONDS]
WHERE CAST(t.value % 40 AS INT) = CAST(h.value % 40 AS INT);

-- The same for hot readings only, but over a whole minute.
CREATE QUERY hot_readings AS
SELECT t.timestamp, t.value % 40 AS location, t.value * 7919 % 97 AS temperature, h.value * 7919 % 97 AS humidity
FROM temperature t [RANGE 60 SECONDS], humidity h [RANGE 60 SECONDS]
WHERE CAST(t.value % 40 AS INT) = CAST(h.value % 40 AS INT) AND t.value * 7919 % 97 > 92;

-- Hot and dry at one location within 30 seconds.
CREATE QUERY hot_and_dry AS
SELECT result_time, t.value % 40 AS location
FROM temperature t [RANGE 30 SECONDS], humidity h [RANGE 30 SECONDS]
WHERE CAST(t.value % 40 AS INT) = CAST(h.value % 40 AS INT)
  AND t.value * 7919 % 97 > 90 AND h.value * 7919 % 97 < 10;

-- The difference of the two readings, where it is large.
CREATE QUERY difference AS
SELECT t.value % 40 AS location, t.value * 7919 % 97 - h.value * 7919 % 97 AS difference
FROM temperature t [RANGE 5 SECONDS], humidity h [RANGE 5 SECONDS]
WHERE CAST(t.value % 40 AS INT) = CAST(h.value % 40 AS INT)
  AND t.value * 7919 % 97 - h.value * 7919 % 97 > 50;

-- Every reading above 94, at once: one stream, nothing to remember.
CREATE QUERY burning AS
SELECT timestamp, value % 40 AS location, value * 7919 % 97 AS temperature
FROM temperature
WHERE value * 7919 % 97 > 94;

-- Smoke with readings of the same location, from 5 seconds before it to 20 seconds after it.
CREATE QUERY smoke_and_heat AS
SELECT s.timestamp, s.value % 40 AS location, t.value * 7919 % 97 AS temperature
FROM smoke s [RANGE 20 SECONDS], temperature t [RANGE 5 SECONDS]
WHERE CAST(s.value % 40 AS INT) = CAST(t.value % 40 AS INT) AND t.value * 7919 % 97 > 50;

-- Fire: heat, dry air and smoke at one location within 15 seconds of each other; also written to Parquet files.
CREATE QUERY fire AS
SELECT result_time, s.value % 40 AS location, t.value * 7919 % 97 AS temperature
FROM temperature t [RANGE 15 SECONDS], humidity h [RANGE 15 SECONDS], smoke s [RANGE 15 SECONDS]
WHERE CAST(t.value % 40 AS INT) = CAST(h.value % 40 AS INT) AND CAST(h.value % 40 AS INT) = CAST(s.value % 40 AS INT)
  AND t.value * 7919 % 97 > 80 AND h.value * 7919 % 97 < 20
INTO 'penstock-results/fire';
