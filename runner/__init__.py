"""Replays past incidents through a candidate agent and records every step in a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    # Loaded when asked for, so that a module of this package does not pay for the whole of it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from runner import nemotron, plan, variants  # noqa: PLC0415

    return next(getattr(module, name) for module in (nemotron, plan, variants) if hasattr(module, name))
