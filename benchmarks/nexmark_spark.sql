-- The queries of nexmark.sql that Spark's streaming queries can be asked, as they are asked there: over views of the streams with their watermarks, in
-- append mode. DISTINCT is refused on streams, so sets of values are counted. Where a window is answered, its end is the last column.

-- q5
WITH counts AS (
  SELECT auction, count(*) AS num, window(date_time, '10 seconds', '2 seconds') AS w FROM bid
  GROUP BY auction, window(date_time, '10 seconds', '2 seconds'))
SELECT -best.a AS auction, best.num, ended FROM (
  SELECT max(named_struct('num', num, 'a', -auction)) AS best, window(w, '2 seconds').end AS ended FROM counts GROUP BY window(w, '2 seconds'));

-- q20
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, a.item_name, a.description, a.initial_bid, a.expires, a.seller, a.category
FROM bid b JOIN auction a ON b.auction = a.id AND a.category = 10
  AND a.date_time > b.date_time - INTERVAL 20 SECONDS AND b.date_time > a.date_time - INTERVAL 20 SECONDS;

-- q1
SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid;

-- q12
SELECT bidder AS c0, count(*) AS c1, w.end AS ended
FROM (SELECT bidder, window(date_time, '10 seconds') AS w FROM bid) GROUP BY bidder, w;

-- q8
SELECT p.id, p.name, a.id AS auction
FROM (SELECT *, window(date_time, '10 seconds') AS w FROM person) p JOIN (SELECT *, window(date_time, '10 seconds') AS w FROM auction) a
  ON p.id = a.seller AND p.w = a.w;

-- q3
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id AND a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
  AND a.date_time > p.date_time - INTERVAL 60 SECONDS AND p.date_time > a.date_time - INTERVAL 60 SECONDS;

-- q11
SELECT bidder, count(*) AS bids, w.start AS begun
FROM (SELECT bidder, session_window(date_time, '10 seconds') AS w FROM bid) GROUP BY bidder, w;

-- q17
SELECT auction AS c0, count(*) AS c1, count(CASE WHEN price < 10000 THEN 1 END) AS c2,
    count(CASE WHEN price >= 10000 AND price < 1000000 THEN 1 END) AS c3, count(CASE WHEN price >= 1000000 THEN 1 END) AS c4,
    min(price) AS c5, max(price) AS c6, avg(price) AS c7, sum(price) AS c8, w.end AS ended
FROM (SELECT *, window(date_time, '60 seconds') AS w FROM bid) GROUP BY auction, w;

-- q2
SELECT auction, price FROM bid WHERE auction % 123 = 0;

-- q14
SELECT auction, bidder, 0.908 * price AS price,
    CASE WHEN hour(date_time) >= 8 AND hour(date_time) <= 18 THEN 'dayTime' WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
        ELSE 'otherTime' END AS kind,
    date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- q0
SELECT auction, bidder, price, date_time, extra FROM bid;

-- q7
SELECT max(price) AS c0, w.end AS ended FROM (SELECT price, window(date_time, '10 seconds') AS w FROM bid) GROUP BY w;

-- q15
SELECT count(*) AS c0, count(CASE WHEN price < 10000 THEN 1 END) AS c1,
    count(CASE WHEN price >= 10000 AND price < 1000000 THEN 1 END) AS c2, count(CASE WHEN price >= 1000000 THEN 1 END) AS c3,
    CAST(size(collect_set(bidder)) AS BIGINT) AS c4, CAST(size(collect_set(CASE WHEN price < 10000 THEN bidder END)) AS BIGINT) AS c5,
    CAST(size(collect_set(CASE WHEN price >= 10000 AND price < 1000000 THEN bidder END)) AS BIGINT) AS c6,
    CAST(size(collect_set(CASE WHEN price >= 1000000 THEN bidder END)) AS BIGINT) AS c7,
    CAST(size(collect_set(auction)) AS BIGINT) AS c8, CAST(size(collect_set(CASE WHEN price < 10000 THEN auction END)) AS BIGINT) AS c9,
    CAST(size(collect_set(CASE WHEN price >= 10000 AND price < 1000000 THEN auction END)) AS BIGINT) AS c10,
    CAST(size(collect_set(CASE WHEN price >= 1000000 THEN auction END)) AS BIGINT) AS c11, w.end AS ended
FROM (SELECT *, window(date_time, '60 seconds') AS w FROM bid) GROUP BY w;

-- q16
SELECT channel AS c0, max(date_format(date_time, 'HH:mm')) AS c1, count(*) AS c2, count(CASE WHEN price < 10000 THEN 1 END) AS c3,
    count(CASE WHEN price >= 10000 AND price < 1000000 THEN 1 END) AS c4, count(CASE WHEN price >= 1000000 THEN 1 END) AS c5,
    CAST(size(collect_set(bidder)) AS BIGINT) AS c6, CAST(size(collect_set(CASE WHEN price < 10000 THEN bidder END)) AS BIGINT) AS c7,
    CAST(size(collect_set(CASE WHEN price >= 10000 AND price < 1000000 THEN bidder END)) AS BIGINT) AS c8,
    CAST(size(collect_set(CASE WHEN price >= 1000000 THEN bidder END)) AS BIGINT) AS c9,
    CAST(size(collect_set(auction)) AS BIGINT) AS c10, CAST(size(collect_set(CASE WHEN price < 10000 THEN auction END)) AS BIGINT) AS c11,
    CAST(size(collect_set(CASE WHEN price >= 10000 AND price < 1000000 THEN auction END)) AS BIGINT) AS c12,
    CAST(size(collect_set(CASE WHEN price >= 1000000 THEN auction END)) AS BIGINT) AS c13, w.end AS ended
FROM (SELECT *, window(date_time, '60 seconds') AS w FROM bid) GROUP BY channel, w;

-- q18
SELECT bidder AS c0, auction AS c1, max(named_struct('t', date_time, 'price', price)).price AS c2, max(date_time) AS c3, w.end AS ended
FROM (SELECT *, window(date_time, '10 seconds') AS w FROM bid) GROUP BY bidder, auction, w;

-- q21
SELECT auction, bidder, price, channel,
    CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1' WHEN lower(channel) = 'facebook' THEN '2'
        WHEN lower(channel) = 'baidu' THEN '3' ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid
WHERE lower(channel) IN ('apple', 'google', 'facebook', 'baidu') OR regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> '';

-- q22
SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3 FROM bid;
