CREATE VIEW call_costs AS
WITH priced AS (
  SELECT run_id, json_extract(settings, '$.prices_currency') AS currency
  FROM runs
  WHERE json_extract(settings, '$.prices_sha256') IS NOT NULL
), listed AS (
  SELECT
    r.run_id,
    substr(s.key, 1, instr(s.key, ':') - 1) AS kind,
    substr(s.key, instr(s.key, ':') + 1) AS model,
    CAST(s.value AS INTEGER) * 1000000
      + CAST(substr(substr(s.value, instr(s.value || '.', '.') + 1) || '000000', 1, 6) AS INTEGER) AS price
  FROM runs AS r, json_each(r.settings) AS s
  WHERE instr(s.key, ':') > 0
), prices AS (
  SELECT
    run_id, model,
    max(CASE kind WHEN 'prompt_price' THEN price END) AS prompt,
    max(CASE kind WHEN 'completion_price' THEN price END) AS completion,
    max(CASE kind WHEN 'cached_price' THEN price END) AS cached,
    max(CASE kind WHEN 'reasoning_price' THEN price END) AS reasoning
  FROM listed
  GROUP BY run_id, model
), parts AS (
  SELECT
    c.run_id, c.request_id, c.attempt, c.model, r.currency, c.state,
    c.state = 'failed' AND NOT c.outcome_unknown
      AND CASE
        WHEN c.http_status IS NULL THEN c.code = 'transport_connect'
        ELSE c.http_status NOT BETWEEN 200 AND 299
      END AS refused,
    coalesce(c.total_tokens = c.prompt_tokens + c.completion_tokens, TRUE)
      AND coalesce(c.cached_tokens <= c.prompt_tokens, TRUE)
      AND coalesce(c.reasoning_tokens <= c.completion_tokens, TRUE) AS sound,
    c.prompt_tokens - CASE WHEN p.cached IS NULL THEN 0 ELSE c.cached_tokens END AS prompt_tokens,
    c.completion_tokens - CASE WHEN p.reasoning IS NULL THEN 0 ELSE c.reasoning_tokens END AS completion_tokens,
    CASE WHEN p.cached IS NULL THEN 0 ELSE c.cached_tokens END AS cached_tokens,
    CASE WHEN p.reasoning IS NULL THEN 0 ELSE c.reasoning_tokens END AS reasoning_tokens,
    p.prompt, p.completion, coalesce(p.cached, 0) AS cached, coalesce(p.reasoning, 0) AS reasoning
  FROM model_calls AS c
  LEFT JOIN priced AS r ON r.run_id = c.run_id
  LEFT JOIN prices AS p ON p.run_id = c.run_id AND p.model = c.model
), costs AS (
  SELECT
    run_id, request_id, attempt, model, currency, state,
    CASE
      WHEN currency IS NULL THEN NULL
      WHEN refused THEN 0
      WHEN state = 'answered' AND sound
        AND coalesce(prompt_tokens <= 1000000000000000000 / nullif(prompt, 0), TRUE)
        AND coalesce(completion_tokens <= 1000000000000000000 / nullif(completion, 0), TRUE)
        AND coalesce(cached_tokens <= 1000000000000000000 / nullif(cached, 0), TRUE)
        AND coalesce(reasoning_tokens <= 1000000000000000000 / nullif(reasoning, 0), TRUE)
      THEN
        prompt_tokens * prompt + completion_tokens * completion
        + cached_tokens * cached + reasoning_tokens * reasoning
    END AS cost_picos
  FROM parts
)
SELECT
  run_id, request_id, attempt, model, currency,
  CASE
    WHEN cost_picos IS NULL THEN 'without_cost'
    WHEN state = 'failed' THEN 'not_billed'
    ELSE 'priced'
  END AS cost_state,
  cost_picos
FROM costs
