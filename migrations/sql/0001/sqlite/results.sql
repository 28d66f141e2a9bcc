CREATE VIEW results AS
SELECT
  q.run_id, q.request_id, q.incident_id, q.line, q.policy_id, q.facets, q.outcome, q.risk_level,
  q.requires_human_approval, q.blocked_by_policy,
  EXISTS (
    SELECT 1 FROM model_calls AS m WHERE m.run_id = q.run_id AND m.request_id = q.request_id AND m.turn = 2
  ) AS retry_used,
  q.outcome = 'fallback' AS fallback_used,
  (q.outcome <> 'fallback' AND NOT q.outcome_unknown) AS trace_complete,
  q.error, q.first_error, q.turn, q.allowances, q.decided_position, q.decided_at,
  CASE WHEN q.outcome = 'fallback' THEN '' ELSE json_extract(c.body, '$.proposed_action') END AS proposed_action,
  CASE WHEN q.outcome = 'fallback' THEN '[]' ELSE json_extract(c.body, '$.action_plan') END AS action_plan
FROM requests AS q
LEFT JOIN contents AS c ON c.position = q.decided_position AND c.encoding = 'utf-8'
WHERE q.outcome IS NOT NULL
