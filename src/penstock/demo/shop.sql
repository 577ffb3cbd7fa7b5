-- A shop whose customers and orders are in PostgreSQL, and whose order lines come as Parquet files.
CREATE SOURCE customers (cust INT, name STRING)
USING postgres OPTIONS (url 'database', table 'customers') CHANGES BY TRIGGER;

CREATE SOURCE orders (k BIGINT, cust INT)
USING postgres OPTIONS (url 'database', table 'orders') CHANGES BY TRIGGER;

CREATE SOURCE lines (k BIGINT, item STRING, cents BIGINT)
USING parquet OPTIONS (path 'shop/lines') CHANGES BY SNAPSHOT;

CREATE MATERIALIZED VIEW revenue AS
SELECT c.name, count(*) AS lines, sum(l.cents) AS cents, max(l.cents) AS dearest
FROM customers c, orders o, lines l
WHERE c.cust = o.cust AND o.k = l.k
GROUP BY c.name;
