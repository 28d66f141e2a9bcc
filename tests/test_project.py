"""What holds for the project as a whole: its files, its dependencies, what is shipped."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("constraints.txt", "constraints-dev.txt")
EXTRAS = ("dev", "sql-tools")
LONGEST_FUNCTION, LONGEST_MODULE = 50, 500
# It must be one file, with all that it needs, and is to be read in one sitting: so it may not grow.
LONGER_MODULES = {Path("ledger/bundle/verifier.py"): 820}
SHIPPED = ("commands/", "ledger/", "migrations/", "runner/")

# Words of one machine, one package index or one day's work. Each is written so that it does not match itself.
OUT_OF_PLACE = {
    "a path of somebody's machine": r"(?<![\w.])/(?:work|root|opt/\w+)/",
    "a package index or mirror": r"py[p]i\.org|pythonhoste[d]|--(?:extra-)?index-ur[l][ =]|--find-link[s][ =]",
    "how the work was divided": r"(?i)\bissue #\d|\bthis sessio[n]\b|\bsub-?agen[t]s?\b|\bspec pag[e]\b",
    "work left undone": r"\bTOD[O]\b|\bFIXM[E]\b|\bXX[X]\b",
}


def git_files() -> list[Path]:
    """Every file that is, or could be, committed; relative to the root."""
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"not a git checkout: {error}")
    return [Path(name) for name in sorted(set(listed.split("\0"))) if name and (ROOT / name).is_file()]


def texts() -> Iterator[tuple[Path, str]]:
    for path in git_files():
        try:
            yield path, (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def project() -> dict[str, object]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        table: dict[str, object] = tomllib.load(file)["project"]
        return table


def requirements(extra: str | None) -> list[Requirement]:
    table = project()
    lines = table["dependencies"] if extra is None else table["optional-dependencies"][extra]  # type: ignore[index]
    return [Requirement(line) for line in lines]  # type: ignore[attr-defined]


def locked(lock: str) -> dict[str, tuple[str, int]]:
    """Name -> (version, number of hashes) of a lock file's entries."""
    joined = (ROOT / lock).read_text(encoding="utf-8").replace("\\\n", " ")
    entries = re.findall(r"(?m)^([a-z0-9-]+)==(\S+)(.*)$", joined)
    return {name: (version, rest.count("--hash=sha256:")) for name, version, rest in entries}


# What is written


@pytest.mark.parametrize("kind", OUT_OF_PLACE)
def test_no_file_speaks_of_the_place_or_the_day_it_was_written_in(kind: str) -> None:
    pattern = re.compile(OUT_OF_PLACE[kind])
    found = [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"
        for path, text in texts()
        for match in pattern.finditer(text)
    ]
    assert not found, kind


def test_what_lies_beside_a_clone_is_read_by_tests_alone() -> None:
    pattern = re.compile(r"\.\./share[d]\b")
    assert [str(path) for path, text in texts() if path.parts[0] != "tests" and pattern.search(text)] == []


def test_the_licence_is_the_one_that_is_declared() -> None:
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert project()["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0, January 2004" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_decisions_are_numbered_without_a_hole_and_titled_by_their_number() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert records
    for number, record in enumerate(records, start=1):
        assert record.name.startswith(f"{number:03}-"), record.name
        text = record.read_text(encoding="utf-8")
        assert text.startswith(f"# {number}. "), record.name
        assert len(text.split()) < 450, f"{record.name} is longer than a page"


def test_every_relative_link_in_the_docs_leads_somewhere() -> None:
    broken = [
        f"{path}: {target}"
        for path, text in texts()
        if path.suffix == ".md"
        for target in re.findall(r"\]\(([^)\s#]+)", text)
        if "://" not in target and not target.startswith("mailto:") and not (ROOT / path.parent / target).exists()
    ]
    assert broken == []


def test_functions_fit_a_screen_and_modules_a_sitting() -> None:
    long = []
    for path in git_files():
        if path.suffix == ".py" and f"{path.parts[0]}/" in SHIPPED:
            text = (ROOT / path).read_text(encoding="utf-8")
            functions = [
                node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            allowed = LONGER_MODULES.get(path, LONGEST_MODULE)
            long += [f"{path}: {text.count(chr(10))} lines"] if text.count("\n") > allowed else []
            long += [
                f"{path}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1} lines"
                for node in functions
                if node.end_lineno is not None and node.end_lineno - node.lineno >= LONGEST_FUNCTION
            ]
    assert long == []


# What it depends on


def test_these_are_its_extras() -> None:
    assert tuple(project()["optional-dependencies"]) == EXTRAS  # type: ignore[call-overload]


def documented_licences() -> dict[str, str]:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| ([a-z0-9-]+) \| ([^|]+) \| [^|]{20,} \|$", page)
    return {name: licence for name, licence in rows if name != "package"}


def test_each_dependency_has_a_line_that_says_why_and_no_line_is_left_over() -> None:
    declared = {canonicalize_name(one.name) for extra in (None, *EXTRAS) for one in requirements(extra)}
    assert set(documented_licences()) == declared


def test_the_licences_in_the_docs_are_those_of_the_installed_packages() -> None:
    beside = {canonicalize_name(one.name) for one in requirements("sql-tools")}  # installed by who wants them
    installed = {canonicalize_name(one.name) for one in metadata.distributions()}
    differing = {
        name: (licence, stated)
        for name, licence in documented_licences().items()
        if name in installed or name not in beside
        if (stated := metadata.metadata(name).get("License-Expression")) and stated != licence
    }
    assert differing == {}


def test_what_only_reads_a_ledger_beside_us_is_in_no_lock_file() -> None:
    names = {canonicalize_name(one.name) for one in requirements("sql-tools")}
    assert names == {"datasette", "duckdb", "pandas"}
    assert [(lock, name) for lock in LOCKS for name in names & locked(lock).keys()] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_file_has_a_hash_for_everything_and_names_no_place(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    entries = locked(lock)
    assert len(entries) == len(re.findall(r"(?m)^[A-Za-z0-9]", text))
    assert [name for name, (_, hashes) in entries.items() if not hashes] == []
    assert not re.search(r"://|(?m:^-)| @ |file:", text)


@pytest.mark.parametrize(("lock", "extra"), [("constraints.txt", None), ("constraints-dev.txt", "dev")])
def test_a_lock_file_satisfies_what_the_project_asks_for(lock: str, extra: str | None) -> None:
    entries = locked(lock)
    asked = [*requirements(None), *(requirements(extra) if extra else [])]
    unmet = [str(one) for one in asked if entries.get(canonicalize_name(one.name), ("", 0))[0] not in one.specifier]
    assert unmet == []


def test_both_lock_files_agree() -> None:
    runtime, tools = (locked(lock) for lock in LOCKS)
    assert runtime.items() <= tools.items()


# How it is imported, and what is shipped


@pytest.mark.parametrize("modules", ["ledger", "runner", "cli", "ledger, runner"])
def test_an_import_gives_no_warning(modules: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", f"import {modules}"]
    outcome = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True)
    assert (outcome.returncode, outcome.stderr) == (0, "")


def test_importing_the_ledger_and_the_runner_leaves_the_postgres_driver_alone(tmp_path: Path) -> None:
    code = "import ledger, runner, sys; print(sorted({'psycopg', 'psycopg_binary'} & set(sys.modules)))"
    outcome = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=True, text=True)
    assert outcome.stdout.strip() == "[]"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without a network from a copy of the files, so that nothing built earlier slips in."""
    folder = tmp_path_factory.mktemp("wheel")
    for path in git_files():
        if path.parts[0] != "tests":
            (folder / "source" / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, folder / "source" / path)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, folder / "source"]
    outcome = subprocess.run(command, capture_output=True, check=False, text=True)
    assert outcome.returncode == 0, outcome.stdout[-2000:] + outcome.stderr[-2000:]
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else_of_ours(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        licences = {Path(name).name for name in archive.namelist() if ".dist-info/licenses/" in name}
    assert packed == {"cli.py", *(str(path) for path in git_files() if str(path).startswith(SHIPPED))}
    assert licences == {"LICENSE", "NOTICE"}


MAKE_A_LEDGER = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import ledger
assert pathlib.Path(ledger.__file__).is_relative_to(sys.argv[1]), ledger.__file__
with ledger.open_ledger("sqlite:///" + sys.argv[2], "create") as made:
    print(made.head().size, "psycopg" in sys.modules)
"""


def test_a_ledger_can_be_made_from_the_wheel_alone_and_without_the_postgres_driver(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    command = [sys.executable, "-c", MAKE_A_LEDGER, str(installed), str(tmp_path / "ledger.db")]
    outcome = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, text=True)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.split() == ["1", "False"]
