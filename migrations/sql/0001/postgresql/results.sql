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
  CASE WHEN q.outcome = 'fallback' THEN '' ELSE c.body::json ->> 'proposed_action' END AS proposed_action,
  CASE WHEN q.outcome = 'fallback' THEN '[]' ELSE (c.body::json -> 'action_plan')::text END AS action_plan
FROM requests AS q
LEFT JOIN contents AS c ON c.position = q.decided_position AND c.encoding = 'utf-8'
WHERE q.outcome IS NOT NULL;
COMMENT ON VIEW results IS 'One row a request that has a result, with the text of the answer while it is kept';
COMMENT ON COLUMN results.run_id IS 'The run';
COMMENT ON COLUMN results.request_id IS 'The request';
COMMENT ON COLUMN results.incident_id IS 'The incident';
COMMENT ON COLUMN results.line IS 'Line of the input file';
COMMENT ON COLUMN results.policy_id IS 'The policy in force';
COMMENT ON COLUMN results.facets IS 'JSON: ids to ids';
COMMENT ON COLUMN results.outcome IS 'accepted_first, accepted_after_retry or fallback';
COMMENT ON COLUMN results.risk_level IS 'low, medium, high or critical';
COMMENT ON COLUMN results.requires_human_approval IS 'What the result says';
COMMENT ON COLUMN results.blocked_by_policy IS 'What the result says (for a model''s answer: what the model said)';
COMMENT ON COLUMN results.retry_used IS 'A call of turn 2 was started';
COMMENT ON COLUMN results.fallback_used IS 'No answer could be accepted';
COMMENT ON COLUMN results.trace_complete IS 'Accepted, and the outcome of each call is known';
COMMENT ON COLUMN results.error IS 'The last error code; null where accepted';
COMMENT ON COLUMN results.first_error IS 'The first error code ever';
COMMENT ON COLUMN results.turn IS 'The turn that decided; null where never sent';
COMMENT ON COLUMN results.allowances IS 'JSON: tolerances the parser used';
COMMENT ON COLUMN results.decided_position IS 'Position of OutputAccepted or FallbackApplied';
COMMENT ON COLUMN results.decided_at IS 'Time of the decision (UTC)';
COMMENT ON COLUMN results.proposed_action IS 'Text of the answer; null once redacted; empty for a fallback';
COMMENT ON COLUMN results.action_plan IS 'JSON list of the answer; null once redacted; [] for a fallback'
