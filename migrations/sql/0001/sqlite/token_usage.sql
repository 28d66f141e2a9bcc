CREATE VIEW token_usage AS
SELECT
  run_id, request_id, attempt, model,
  prompt_tokens, completion_tokens, total_tokens, cached_tokens, reasoning_tokens
FROM model_calls
WHERE state = 'answered'
