-- Forty locations report temperature and humidity twice a second; smoke sensors speak up now and then.
-- Readings arrive up to two seconds after they were taken, and not in order.

CREATE STREAM temperature (
    sensor STRING, location INT, at TIMESTAMP, value DOUBLE,
    WATERMARK FOR at AS at - INTERVAL 3 SECONDS
) USING json OPTIONS (path 'input/temperature');

CREATE STREAM humidity (
    sensor STRING, location INT, at TIMESTAMP, value DOUBLE,
    WATERMARK FOR at AS at - INTERVAL 3 SECONDS
) USING json OPTIONS (path 'input/humidity');

CREATE STREAM smoke (
    sensor STRING, location INT, at TIMESTAMP, density DOUBLE,
    WATERMARK FOR at AS at - INTERVAL 3 SECONDS
) USING json OPTIONS (path 'input/smoke');

-- All pairs of a temperature and a humidity at one location, less than 10 seconds apart.
CREATE QUERY all_pairs AS
SELECT t.location, t.at, t.value AS temperature, h.value AS humidity
FROM temperature t [RANGE 10 SECONDS], humidity h [RANGE 10 SECONDS]
WHERE t.location = h.location;

-- The same for hot readings only, but over a whole minute.
CREATE QUERY hot_readings AS
SELECT t.location, t.at, t.value AS temperature, h.value AS humidity
FROM temperature t [RANGE 60 SECONDS], humidity h [RANGE 60 SECONDS]
WHERE t.location = h.location AND t.value > 30;

-- Hot and dry at one location within 30 seconds.
CREATE QUERY hot_and_dry AS
SELECT t.location, result_time, t.value AS heat, h.value AS humidity
FROM temperature t [RANGE 30 SECONDS], humidity h [RANGE 30 SECONDS]
WHERE t.location = h.location AND t.value > 40 AND h.value < 25;

-- How the air feels where it is warm: an index computed from readings less than 5 seconds apart.
CREATE QUERY felt_temperature AS
SELECT t.location, t.at,
       round(t.value - 0.0055 * (100 - h.value) * (t.value - 14.5), 1) AS felt
FROM temperature t [RANGE 5 SECONDS], humidity h [RANGE 5 SECONDS]
WHERE t.location = h.location AND t.value BETWEEN 24 AND 60;

-- Every reading above 60 degrees, at once: one stream, nothing to remember.
CREATE QUERY burning AS
SELECT sensor, location, at, value
FROM temperature
WHERE value > 60;

-- Smoke with cool readings of the same location, from 5 seconds before it to 20 seconds after it.
CREATE QUERY cool_smoke AS
SELECT s.location, s.at, s.density, t.value AS temperature
FROM smoke s [RANGE 20 SECONDS], temperature t [RANGE 5 SECONDS]
WHERE s.location = t.location AND s.density > 0.1 AND t.value < 22;

-- Fire: heat, dry air and thick smoke at one location within 15 seconds of each other.
CREATE QUERY fire AS
SELECT s.location, result_time, t.value AS heat, h.value AS humidity, s.density
FROM temperature t [RANGE 15 SECONDS], humidity h [RANGE 15 SECONDS],
     smoke s [RANGE 15 SECONDS]
WHERE t.location = h.location AND h.location = s.location
  AND t.value > 50 AND h.value < 20 AND s.density > 0.5;
