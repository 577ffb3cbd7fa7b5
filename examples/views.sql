-- Two views over three sources in two systems, kept fresh while rows change: penstock run examples/views.sql
--
-- It wants a PostgreSQL database (write its address below) with two tables,
--
--   CREATE TABLE customers (cust int PRIMARY KEY, name text);
--   CREATE TABLE orders (k bigint PRIMARY KEY, cust int, day date);
--   CREATE INDEX ON orders (cust);
--
-- and Parquet files in the folder shop/lines with the columns k, item, amount and price. Insert, update and delete as you like,
-- and let files come and go: each refresh asks the sources only for what their changes concern.

-- Triggers record what changes in the tables, so that no change is missed, in whatever order transactions commit.
CREATE SOURCE customers (cust INT, name STRING)
USING postgres OPTIONS (url 'postgresql:///shop', table 'customers') KEY (cust) CHANGES BY TRIGGER;

CREATE SOURCE orders (k BIGINT, cust INT, day DATE)
USING postgres OPTIONS (url 'postgresql:///shop', table 'orders') KEY (k) CHANGES BY TRIGGER;

-- Files are told apart by name, size and time; what a file held that is gone is known from the engine's own copy.
CREATE SOURCE lines (k BIGINT, item STRING, amount INT, price DECIMAL(10, 2))
USING parquet OPTIONS (path 'shop/lines') CHANGES BY SNAPSHOT;

-- Every line with its customer.
CREATE MATERIALIZED VIEW sold REFRESH EVERY 1 SECOND AS
SELECT c.name, o.day, l.item, l.amount * l.price AS paid
FROM customers c, orders o, lines l
WHERE c.cust = o.cust AND o.k = l.k;

-- What each customer has paid since the beginning of the year.
CREATE MATERIALIZED VIEW revenue REFRESH EVERY 1 SECOND AS
SELECT c.name, count(*) AS lines, sum(l.amount * l.price) AS paid, max(o.day) AS latest
FROM customers c, orders o, lines l
WHERE c.cust = o.cust AND o.k = l.k AND o.day >= DATE '2026-01-01'
GROUP BY c.name;
