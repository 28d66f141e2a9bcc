"""Bundles for tests: the example's, taken apart and put together again; and whole forged ones, signed.

Zips are written with the standard library here, apart from how the project writes them.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import io
import json
import sys
import zipfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import ledger
from ledger.integrity import merkle
from ledger.integrity.canonical import encode
from ledger.integrity.checkpoint import Checkpoint, format_checkpoint
from ledger.integrity.note import SigningKey, sign_note

EXAMPLE = Path(__file__).parents[2] / "data" / "ledger_example"
PROGRAM = Path(ledger.__file__).parent / "bundle" / "verifier.py"
NAMES = (
    *("README.txt", "manifest.json", "checkpoint.txt", "leaves.txt"),
    *("events.jsonl", "report.json", "results.jsonl", "report.html"),
)
KEY = SigningKey("ledger.example/forged", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
OTHER_KEY = SigningKey("ledger.example/audit", Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))


@functools.cache
def load_verifier() -> ModuleType:
    """The standalone verifier as a module. Its slow, pure check of a signature is remembered."""
    spec = importlib.util.spec_from_file_location("standalone_verifier", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    module.signature_valid = functools.lru_cache(module.signature_valid)
    return module


def vkey() -> str:
    return (EXAMPLE / "vkey.txt").read_text().strip()


def pinned(size: int | str) -> bytes:
    return (EXAMPLE / f"pinned-checkpoint-{size}.txt").read_bytes()


def example_zip() -> bytes:
    return (EXAMPLE / "audit-example-run.zip").read_bytes()


def judge(
    data: bytes,
    key: str | Sequence[str],
    checkpoint: bytes | None = None,
    consistency: Path | None = None,
    max_window: int = 0,
) -> tuple[int, str]:
    """What the verifier's exit code would be, and why; in this process. FAIL must come as its own ``Fault``."""
    v = load_verifier()
    keys = [v.parse_vkey(text) for text in ([key] if isinstance(key, str) else key)]
    args = argparse.Namespace(consistency=consistency, max_window=max_window)
    try:
        kept = None if checkpoint is None else v.open_checkpoint(checkpoint, keys)
        verdict = v.check_bundle(io.BytesIO(data), keys, kept, args)
    except v.Fault as fault:
        text = str(fault)
        if not (text.isascii() and text.isprintable()):
            raise AssertionError(f"printed raw: {text!a}") from None
        return 1, text
    return 3 if verdict.unproven else 0, "\n".join(verdict.lines())


def judge_example(data: bytes) -> tuple[int, str]:
    return judge(data, vkey(), pinned("all"))


def run_main(*words: object) -> tuple[int, str]:
    """The program's ``main``, in this process: its exit code and what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = load_verifier().main(list(map(str, words)))
        except SystemExit as end:
            code = int(str(end.code))
    return code, out.getvalue()


# --- taking apart and putting together -----------------------------------------------------


def entries(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as bundle:
        return {name: bundle.read(name) for name in bundle.namelist()}


def pack(parts: Mapping[str, bytes], *, compress: int = zipfile.ZIP_STORED) -> bytes:
    """A zip of the parts in their order, with the metadata that the format asks for."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as bundle:
        for name, data in parts.items():
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr, info.compress_type = 3, 0o100644 << 16, compress
            bundle.writestr(info, data)
    return out.getvalue()


def with_manifest(parts: Mapping[str, bytes], **changes: Any) -> dict[str, bytes]:
    """The parts with a manifest that follows from them, in the order of the format; members may be changed."""
    files = {name: sha256(data).hexdigest() for name, data in parts.items() if name != "manifest.json"}
    manifest = {**json.loads(entries(example_zip())["manifest.json"]), "files": files, **changes}
    return {name: encode(manifest) + b"\n" if name == "manifest.json" else parts[name] for name in NAMES}


def repack(parts: Mapping[str, bytes], **changes: Any) -> bytes:
    return pack(with_manifest(parts, **changes))


# --- forging -------------------------------------------------------------------------------


def event_line(envelope: Mapping[str, Any], payload: bytes, content: str | None = None) -> bytes:
    """A line of events.jsonl whose digests match, whatever the payload's bytes are."""
    salt = None if content is None else "5a" * 32
    body = None if content is None else sha256(b"\x02" + bytes.fromhex("5a" * 32) + content.encode()).hexdigest()
    whole = {**envelope, "payload_sha256": sha256(payload).hexdigest(), "content_commitment": body}
    return b'{"content":%b,"encoding":%b,"envelope":%b,"payload":%b,"salt":%b}' % (
        *(encode(content), encode(None if content is None else "utf-8")),
        *(encode(whole), payload, encode(salt)),
    )


def forge(lines: Sequence[bytes], key: SigningKey = KEY, **parts: bytes) -> bytes:
    """A bundle of these lines, signed, with all that follows from them; ``parts`` replace entries."""
    envelopes = [line.split(b'"envelope":', 1)[1].split(b',"payload":', 1)[0] for line in lines]
    leaves = [merkle.leaf_hash(envelope) for envelope in envelopes]
    note = sign_note(format_checkpoint(Checkpoint(key.name, len(leaves), merkle.root(leaves))), [key])
    made = {
        **entries(example_zip()),
        "checkpoint.txt": note.encode(),
        "leaves.txt": b"".join(leaf.hex().encode() + b"\n" for leaf in leaves),
        "events.jsonl": b"".join(line + b"\n" for line in lines),
        **{name.replace("_", "."): data for name, data in parts.items()},
    }
    return repack(made, ledger=key.name, size=len(leaves))
