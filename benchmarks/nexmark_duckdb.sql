-- What DuckDB says to the queries of nexmark.sql over all rows at once. Tables have their event time as microseconds too, in `t`, and what the engine
-- gives as a time is compared as microseconds. Windows end at multiples of their slide and contain [end - range, end).

-- q5
WITH ends AS (SELECT auction, (t // 2000000 + unnest(range(1, 6))) * 2000000 AS ended FROM bid),
     counts AS (SELECT auction, count(*) AS num, ended FROM ends GROUP BY ALL)
SELECT auction, num, ended FROM counts QUALIFY row_number() OVER (PARTITION BY ended ORDER BY num DESC, auction) = 1;

-- q20
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.t, a.item_name, a.description, a.initial_bid, epoch_us(a.expires), a.seller, a.category
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10 AND a.t - b.t < 20000000 AND b.t - a.t < 20000000;

-- q1
SELECT auction, bidder, 0.908 * price, t, extra FROM bid;

-- q12
SELECT bidder, count(*), (t // 10000000 + 1) * 10000000 AS ended FROM bid GROUP BY bidder, ended;

-- q8
SELECT p.id, p.name, a.id FROM person p JOIN auction a ON p.id = a.seller AND p.t // 10000000 = a.t // 10000000;

-- q3
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA') AND a.t - p.t < 60000000 AND p.t - a.t < 60000000;

-- q11
WITH begins AS (
       SELECT bidder, t, coalesce(t - lag(t) OVER (PARTITION BY bidder ORDER BY t) >= 10000000, TRUE) AS new FROM bid),
     sessions AS (SELECT bidder, t, sum(new::INT) OVER (PARTITION BY bidder ORDER BY t) AS number FROM begins)
SELECT bidder, count(*), min(t) FROM sessions GROUP BY bidder, number;

-- q17
SELECT auction, count(*), count(*) FILTER (price < 10000), count(*) FILTER (price >= 10000 AND price < 1000000),
    count(*) FILTER (price >= 1000000), min(price), max(price), sum(price)::DOUBLE / count(*), sum(price)::BIGINT,
    (t // 60000000 + 1) * 60000000 AS ended
FROM bid GROUP BY auction, ended;

-- q2
SELECT auction, price FROM bid WHERE auction % 123 = 0;

-- q14
SELECT auction, bidder, 0.908 * price,
    CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime' WHEN hour(date_time) BETWEEN 7 AND 19 THEN 'otherTime' ELSE 'nightTime' END,
    t, extra, length(extra) - length(replace(extra, 'c', ''))
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- q0
SELECT auction, bidder, price, t, extra FROM bid;

-- q7
SELECT max(price), (t // 10000000 + 1) * 10000000 AS ended FROM bid GROUP BY ended;

-- q15
SELECT count(*), count(*) FILTER (price < 10000), count(*) FILTER (price >= 10000 AND price < 1000000), count(*) FILTER (price >= 1000000),
    count(DISTINCT bidder), count(DISTINCT bidder) FILTER (price < 10000),
    count(DISTINCT bidder) FILTER (price >= 10000 AND price < 1000000), count(DISTINCT bidder) FILTER (price >= 1000000),
    count(DISTINCT auction), count(DISTINCT auction) FILTER (price < 10000),
    count(DISTINCT auction) FILTER (price >= 10000 AND price < 1000000), count(DISTINCT auction) FILTER (price >= 1000000),
    (t // 60000000 + 1) * 60000000 AS ended
FROM bid GROUP BY ended;

-- q16
SELECT channel, max(strftime(date_time, '%H:%M')),
    count(*), count(*) FILTER (price < 10000), count(*) FILTER (price >= 10000 AND price < 1000000), count(*) FILTER (price >= 1000000),
    count(DISTINCT bidder), count(DISTINCT bidder) FILTER (price < 10000),
    count(DISTINCT bidder) FILTER (price >= 10000 AND price < 1000000), count(DISTINCT bidder) FILTER (price >= 1000000),
    count(DISTINCT auction), count(DISTINCT auction) FILTER (price < 10000),
    count(DISTINCT auction) FILTER (price >= 10000 AND price < 1000000), count(DISTINCT auction) FILTER (price >= 1000000),
    (t // 60000000 + 1) * 60000000 AS ended
FROM bid GROUP BY channel, ended;

-- q18: rows of one moment follow each other by their columns in the order of the declaration; of one bidder and auction the price is the first that differs
SELECT bidder, auction, last(price ORDER BY t, price), max(t), (t // 10000000 + 1) * 10000000 AS ended FROM bid GROUP BY bidder, auction, ended;

-- q19
WITH best AS (SELECT auction, bidder, max(price) AS price, (t // 10000000 + 1) * 10000000 AS ended FROM bid GROUP BY auction, bidder, ended)
SELECT auction, bidder, price, ended FROM best
QUALIFY row_number() OVER (PARTITION BY ended ORDER BY price DESC, auction, bidder) <= 10;

-- q21
SELECT auction, bidder, price, channel,
    CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
        ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid WHERE channel_id <> '';

-- q22
SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5), split_part(url, '/', 6) FROM bid;

-- q23
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.t, a.item_name, a.description, a.initial_bid, epoch_us(a.expires), a.seller,
    a.category, p.name, p.city
FROM bid b JOIN auction a ON b.auction = a.id JOIN person p ON b.bidder = p.id
WHERE a.category = 10 AND greatest(a.t, b.t, p.t) - least(a.t, b.t, p.t) < 20000000;

-- q9
WITH ends AS (SELECT *, (t // 10000000 + unnest(range(1, 4))) * 10000000 AS ended FROM auction)
SELECT a.id, a.category, a.seller, max(b.price), ended
FROM ends a JOIN bid b ON a.id = b.auction AND ended = (b.t // 10000000 + 1) * 10000000
WHERE b.t BETWEEN a.t AND epoch_us(a.expires) GROUP BY a.id, a.category, a.seller, ended;

-- q4: a result of q9 counts from its time on, the end of its window
WITH ends AS (SELECT *, (t // 10000000 + unnest(range(1, 4))) * 10000000 AS ended FROM auction),
     q9 AS (
       SELECT a.category, max(b.price) AS final, ended
       FROM ends a JOIN bid b ON a.id = b.auction AND ended = (b.t // 10000000 + 1) * 10000000
       WHERE b.t BETWEEN a.t AND epoch_us(a.expires) GROUP BY a.id, a.category, a.seller, ended)
SELECT category, sum(final)::DOUBLE / count(*), ended + 10000000 FROM q9 GROUP BY category, ended;
