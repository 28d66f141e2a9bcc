"""Other people's test vectors. They are not part of the project; tests skip where they are absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

VECTORS = Path(__file__).parents[4] / "shared" / "vectors"


def folder(name: str) -> Path:
    path = VECTORS / name
    if not path.is_dir():
        pytest.skip(f"no vectors at {path}")
    return path


def load(name: str) -> Any:
    return json.loads((folder(str(Path(name).parent)) / Path(name).name).read_bytes())
