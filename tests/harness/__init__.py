"""What the tests stand on: real database servers and a real endpoint, started and stopped by the test run."""
