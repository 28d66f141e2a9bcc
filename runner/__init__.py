"""Replays past incidents through a candidate agent and records every step in a ledger."""

from runner.nemotron import NemotronExternalRunnerConfig, ReplayReport, run_nemotron_external_replay
from runner.plan import RunError, RunExists
from runner.variants import NEMOTRON_CONTRACT_TUNED_VARIANT_ID

__all__ = [
    "NEMOTRON_CONTRACT_TUNED_VARIANT_ID",
    "NemotronExternalRunnerConfig",
    "ReplayReport",
    "RunError",
    "RunExists",
    "run_nemotron_external_replay",
]
