CREATE VIEW run_costs AS
WITH sums AS (
  SELECT
    run_id, count(*) AS calls,
    sum(CASE cost_state WHEN 'priced' THEN 1 ELSE 0 END) AS calls_priced,
    sum(CASE cost_state WHEN 'not_billed' THEN 1 ELSE 0 END) AS calls_not_billed,
    sum(CASE cost_state WHEN 'without_cost' THEN 1 ELSE 0 END) AS calls_without_cost,
    sum(cost_picos / 1000000) + sum(cost_picos % 1000000) / 1000000 AS micros,
    sum(cost_picos % 1000000) % 1000000 AS picos
  FROM call_costs
  GROUP BY run_id
), told AS (
  SELECT
    r.run_id, json_extract(r.settings, '$.prices_currency') AS currency,
    json_extract(r.settings, '$.prices_sha256') AS prices_sha256,
    coalesce(s.calls, 0) AS calls, coalesce(s.calls_priced, 0) AS calls_priced,
    coalesce(s.calls_not_billed, 0) AS calls_not_billed, coalesce(s.calls_without_cost, 0) AS calls_without_cost,
    rtrim(rtrim(
      printf('%d.%06d%06d', coalesce(s.micros, 0) / 1000000, coalesce(s.micros, 0) % 1000000, coalesce(s.picos, 0)), '0'
    ), '.') AS cost
  FROM runs AS r
  LEFT JOIN sums AS s ON s.run_id = r.run_id
)
SELECT
  run_id, currency, calls, calls_priced, calls_not_billed, calls_without_cost,
  CASE WHEN prices_sha256 IS NOT NULL THEN cost END AS known,
  CASE WHEN prices_sha256 IS NOT NULL AND calls_without_cost = 0 THEN cost END AS total,
  prices_sha256
FROM told
