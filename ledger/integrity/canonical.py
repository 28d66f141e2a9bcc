"""RFC 8785 (JCS). Stand-in while the whole module is being built."""
from __future__ import annotations
from typing import Any, Mapping
import orjson
def encode_payload(payload: Mapping[str, Any]) -> bytes:
    return orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)
