CREATE VIEW token_usage AS
SELECT
  run_id, request_id, attempt, model,
  prompt_tokens, completion_tokens, total_tokens, cached_tokens, reasoning_tokens
FROM model_calls
WHERE state = 'answered';
COMMENT ON VIEW token_usage IS 'One row a model call that was answered';
COMMENT ON COLUMN token_usage.run_id IS 'The run';
COMMENT ON COLUMN token_usage.request_id IS 'The request';
COMMENT ON COLUMN token_usage.attempt IS '1, 2, 3 ... over the request';
COMMENT ON COLUMN token_usage.model IS 'The model that answered, by its own word';
COMMENT ON COLUMN token_usage.prompt_tokens IS 'Null where not reported';
COMMENT ON COLUMN token_usage.completion_tokens IS 'Null where not reported';
COMMENT ON COLUMN token_usage.total_tokens IS 'Null where not reported';
COMMENT ON COLUMN token_usage.cached_tokens IS 'Null where not reported';
COMMENT ON COLUMN token_usage.reasoning_tokens IS 'Null where not reported'
