-- The queries of NEXMark over windows, for one engine. Above each its number and who can be asked it: `both`, Spark's streaming queries too, or only
-- `ours` (queries over queries, the first rows of each window, a join of streams with times of their own). {inputs} is the folder of the files.

CREATE STREAM person (id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING, date_time TIMESTAMP, extra STRING,
    WATERMARK FOR date_time AS date_time - INTERVAL 2 SECONDS) USING parquet OPTIONS (path '{inputs}/person', maxFilesPerTrigger '1');
CREATE STREAM auction (id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, date_time TIMESTAMP, expires TIMESTAMP,
    seller BIGINT, category BIGINT, extra STRING, WATERMARK FOR date_time AS date_time - INTERVAL 2 SECONDS) USING parquet OPTIONS (path '{inputs}/auction', maxFilesPerTrigger '1');
CREATE STREAM bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP, extra STRING,
    WATERMARK FOR date_time AS date_time - INTERVAL 2 SECONDS) USING parquet OPTIONS (path '{inputs}/bid', maxFilesPerTrigger '1');

-- q5: both: the auction with the most bids, over the last ten seconds every two
CREATE QUERY q5 AS
SELECT auction, count(*) AS num, window_end
FROM bid [RANGE 10 SECONDS SLIDE 2 SECONDS]
GROUP BY auction
ORDER BY num DESC LIMIT 1;

-- q20: both: bids with the auction that they are for, of one category
CREATE QUERY q20 AS
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, a.item_name, a.description, a.initial_bid, a.expires, a.seller,
    a.category
FROM bid [RANGE 20 SECONDS] b, auction [RANGE 20 SECONDS] a
WHERE b.auction = a.id AND a.category = 10;

-- q1: both: bids in another currency
CREATE QUERY q1 AS
SELECT auction, bidder, 0.908 * price AS price, date_time, extra
FROM bid;

-- q12: both: bids of each bidder in ten seconds
CREATE QUERY q12 AS
SELECT bidder AS c0, count(*) AS c1, window_end
FROM bid [TUMBLING 10 SECONDS]
GROUP BY bidder;

-- q8: both: people who have opened an auction in the ten seconds in which they came
CREATE QUERY q8 AS
SELECT p.id, p.name, a.id AS auction
FROM person [TUMBLING 10 SECONDS] p, auction [TUMBLING 10 SECONDS] a
WHERE p.id = a.seller;

-- q3: both: auctions of one category by sellers of three states
CREATE QUERY q3 AS
SELECT p.name, p.city, p.state, a.id
FROM auction [RANGE 1 MINUTE] a, person [RANGE 1 MINUTE] p
WHERE a.seller = p.id AND a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- q11: both: bids of each bidder while no ten seconds pass without one
CREATE QUERY q11 AS
SELECT bidder, count(*) AS bids, window_start
FROM bid [SESSION 10 SECONDS]
GROUP BY bidder;

-- q17: both: statistics of each auction's prices, a minute
CREATE QUERY q17 AS
SELECT auction AS c0, count(*) AS c1, count(CASE WHEN price < 10000 THEN 1 END) AS c2,
    count(CASE WHEN price >= 10000 AND price < 1000000 THEN 1 END) AS c3, count(CASE WHEN price >= 1000000 THEN 1 END) AS c4,
    min(price) AS c5, max(price) AS c6, avg(price) AS c7, sum(price) AS c8, window_end
FROM bid [TUMBLING 60 SECONDS]
GROUP BY auction;

-- q2: both: bids for some auctions
CREATE QUERY q2 AS
SELECT auction, price
FROM bid
WHERE auction % 123 = 0;

-- q14: both: dear bids, with the time of the day and a count of letters
CREATE QUERY q14 AS
SELECT auction, bidder, 0.908 * price AS price,
    CASE WHEN hour(date_time) >= 8 AND hour(date_time) <= 18 THEN 'dayTime' WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS kind,
    date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- q0: both: bids as they are
CREATE QUERY q0 AS
SELECT auction, bidder, price, date_time, extra
FROM bid;

-- q7: both: the greatest price in ten seconds
CREATE QUERY q7 AS
SELECT max(price) AS c0, window_end
FROM bid [TUMBLING 10 SECONDS];

-- q15: both: bids, bidders and auctions by how dear they are, a minute
CREATE QUERY q15 AS
SELECT count(*) AS c0, count(CASE WHEN price < 10000 THEN 1 END) AS c1,
    count(CASE WHEN price >= 10000 AND price < 1000000 THEN 1 END) AS c2, count(CASE WHEN price >= 1000000 THEN 1 END) AS c3,
    count(DISTINCT bidder) AS c4, count(DISTINCT CASE WHEN price < 10000 THEN bidder END) AS c5,
    count(DISTINCT CASE WHEN price >= 10000 AND price < 1000000 THEN bidder END) AS c6,
    count(DISTINCT CASE WHEN price >= 1000000 THEN bidder END) AS c7, count(DISTINCT auction) AS c8,
    count(DISTINCT CASE WHEN price < 10000 THEN auction END) AS c9,
    count(DISTINCT CASE WHEN price >= 10000 AND price < 1000000 THEN auction END) AS c10,
    count(DISTINCT CASE WHEN price >= 1000000 THEN auction END) AS c11, window_end
FROM bid [TUMBLING 60 SECONDS];

-- q16: both: the same of each channel
CREATE QUERY q16 AS
SELECT channel AS c0, max(date_format(date_time, 'HH:mm')) AS c1, count(*) AS c2, count(CASE WHEN price < 10000 THEN 1 END) AS c3,
    count(CASE WHEN price >= 10000 AND price < 1000000 THEN 1 END) AS c4, count(CASE WHEN price >= 1000000 THEN 1 END) AS c5,
    count(DISTINCT bidder) AS c6, count(DISTINCT CASE WHEN price < 10000 THEN bidder END) AS c7,
    count(DISTINCT CASE WHEN price >= 10000 AND price < 1000000 THEN bidder END) AS c8,
    count(DISTINCT CASE WHEN price >= 1000000 THEN bidder END) AS c9, count(DISTINCT auction) AS c10,
    count(DISTINCT CASE WHEN price < 10000 THEN auction END) AS c11,
    count(DISTINCT CASE WHEN price >= 10000 AND price < 1000000 THEN auction END) AS c12,
    count(DISTINCT CASE WHEN price >= 1000000 THEN auction END) AS c13, window_end
FROM bid [TUMBLING 60 SECONDS]
GROUP BY channel;

-- q18: both: the last bid of each bidder for each auction in ten seconds
CREATE QUERY q18 AS
SELECT bidder AS c0, auction AS c1, last(price) AS c2, max(date_time) AS c3, window_end
FROM bid [TUMBLING 10 SECONDS]
GROUP BY bidder, auction;

-- q19: ours: the ten dearest bids of ten seconds
CREATE QUERY q19 AS
SELECT auction, bidder, max(price) AS price, window_end
FROM bid [TUMBLING 10 SECONDS]
GROUP BY auction, bidder
ORDER BY price DESC LIMIT 10;

-- q21: both: bids with the number of their channel
CREATE QUERY q21 AS
SELECT auction, bidder, price, channel,
    CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1' WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3' ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid
WHERE lower(channel) IN ('apple', 'google', 'facebook', 'baidu') OR regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> '';

-- q22: both: bids with the directories of their address
CREATE QUERY q22 AS
SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bid;

-- q23: ours: bids with their auction and their bidder
CREATE QUERY q23 AS
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, a.item_name, a.description, a.initial_bid, a.expires, a.seller,
    a.category, p.name, p.city
FROM bid [RANGE 20 SECONDS] b, person [RANGE 20 SECONDS] p, auction [RANGE 20 SECONDS] a
WHERE b.auction = a.id AND b.bidder = p.id AND a.category = 10;

-- q9: ours: the greatest bid so far for each auction that was open, every ten seconds
CREATE QUERY q9 AS
SELECT a.id, a.category, a.seller, max(b.price) AS final, window_end AS at
FROM auction [RANGE 30 SECONDS SLIDE 10 SECONDS] a, bid [RANGE 10 SECONDS SLIDE 10 SECONDS] b
WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
GROUP BY a.id, a.category, a.seller;

-- q4: ours: the mean of these by category
CREATE QUERY q4 AS
SELECT category, avg(final) AS price, window_end
FROM q9 [TUMBLING 10 SECONDS]
GROUP BY category;
