"""The streams that the tests of this folder query."""

from penstock.sql import CreateStream, parse_script

SCRIPT = """
CREATE STREAM a (k STRING, n INT, big BIGINT, x DOUBLE, f FLOAT, s STRING, flag BOOLEAN, d DECIMAL(10,2), day DATE,
  payload STRUCT<field: INT, inner: STRUCT<deep: STRING>>, arr ARRAY<INT>, ts TIMESTAMP,
  WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS) USING rate;
CREATE STREAM b (k STRING, n INT, big BIGINT, x DOUBLE, s STRING, m STRING, only_b INT, ts TIMESTAMP,
  WATERMARK FOR ts AS ts) USING rate;
CREATE STREAM c (k STRING, n INT, big BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts) USING rate;
CREATE STREAM i (k STRING, n INT, t BIGINT, WATERMARK FOR t AS t - 5) USING rate;
CREATE STREAM j (k STRING, n INT, t INT, WATERMARK FOR t AS t) USING rate;
CREATE STREAM d1 (k STRING, day DATE, WATERMARK FOR day AS day) USING rate;
CREATE STREAM d2 (k STRING, day DATE, WATERMARK FOR day AS day) USING rate;
CREATE STREAM seq (k STRING, arr ARRAY<INT>, no BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts, SEQUENCE BY no)
USING rate;
CREATE STREAM ntz (k STRING, ts TIMESTAMP_NTZ, WATERMARK FOR ts AS ts) USING rate;
"""

STREAMS = {s.stream.name: s.stream for s in parse_script(SCRIPT) if isinstance(s, CreateStream)}
