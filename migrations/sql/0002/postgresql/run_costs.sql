CREATE VIEW run_costs AS
WITH sums AS (
  SELECT
    run_id, count(*) AS calls,
    sum(CASE cost_state WHEN 'priced' THEN 1 ELSE 0 END) AS calls_priced,
    sum(CASE cost_state WHEN 'not_billed' THEN 1 ELSE 0 END) AS calls_not_billed,
    sum(CASE cost_state WHEN 'without_cost' THEN 1 ELSE 0 END) AS calls_without_cost,
    sum(cost_picos) AS picos
  FROM call_costs
  GROUP BY run_id
), told AS (
  SELECT
    r.run_id, r.settings::json ->> 'prices_currency' AS currency,
    r.settings::json ->> 'prices_sha256' AS prices_sha256,
    coalesce(s.calls, 0) AS calls, coalesce(s.calls_priced, 0) AS calls_priced,
    coalesce(s.calls_not_billed, 0) AS calls_not_billed, coalesce(s.calls_without_cost, 0) AS calls_without_cost,
    CAST(trim_scale(coalesce(s.picos, 0) * 0.000000000001) AS text) AS cost
  FROM runs AS r
  LEFT JOIN sums AS s ON s.run_id = r.run_id
)
SELECT
  run_id, currency, calls, calls_priced, calls_not_billed, calls_without_cost,
  CASE WHEN prices_sha256 IS NOT NULL THEN cost END AS known,
  CASE WHEN prices_sha256 IS NOT NULL AND calls_without_cost = 0 THEN cost END AS total,
  prices_sha256
FROM told;
COMMENT ON VIEW run_costs IS 'One row a run, with what its calls cost, as in its report';
COMMENT ON COLUMN run_costs.run_id IS 'The run';
COMMENT ON COLUMN run_costs.currency IS 'What the prices are in; null where the run had none';
COMMENT ON COLUMN run_costs.calls IS 'Model calls, whatever became of them';
COMMENT ON COLUMN run_costs.calls_priced IS 'Calls whose cost is known from their tokens';
COMMENT ON COLUMN run_costs.calls_not_billed IS 'Calls never connected or refused, which cost nothing';
COMMENT ON COLUMN run_costs.calls_without_cost IS 'Calls whose cost is unknown';
COMMENT ON COLUMN run_costs.known IS 'Decimal text: the cost of the calls that are priced';
COMMENT ON COLUMN run_costs.total IS 'Decimal text: the cost of all calls; null where that of any is unknown';
COMMENT ON COLUMN run_costs.prices_sha256 IS 'SHA-256 of the file of prices'
