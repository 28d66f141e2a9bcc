"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from commands._config import path_of, read_config
from commands._failures import Refused
from commands._session import read_env_file, session
from commands._types import AsOf, Identifier

PREFIX: Final = "REPLAY_LEDGER_"
STDIN: Final = "-"

F = TypeVar("F", bound=Callable[..., Any])


class Option(click.Option):
    """An option that ``REPLAY_LEDGER_<OPTION>`` may give as well, from the environment or a file, or ``--config``."""

    @property
    def variable(self) -> str:
        longest = max(self.opts, key=len)
        return PREFIX + longest.lstrip("-").replace("-", "_").upper()

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        return session(ctx).variable(self.variable)

    def consume_value(self, ctx: click.Context, opts: Mapping[str, click.Parameter]) -> tuple[Any, ParameterSource]:
        value, source = super().consume_value(ctx, opts)
        config = session(ctx).config
        # A group has the common options only to hand them on: what a file says is for the command itself.
        if config is None or source is not ParameterSource.DEFAULT or isinstance(ctx.command, click.Group):
            return value, source
        given = config.given(path_of(ctx), self)
        return (value, source) if given is None else (given, ParameterSource.DEFAULT_MAP)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        hint = super().get_error_hint(ctx)
        if ctx is not None and ctx.get_parameter_source(self.name) is ParameterSource.DEFAULT_MAP:
            config = session(ctx).config
            return hint if config is None else f"{hint} (in {config.file})"
        from_environment = ctx is not None and session(ctx).variable(self.variable) is not None
        return f"{hint} (or {self.variable})" if from_environment else hint


class TypedOption(Option):
    """An option of the command line alone: it confirms, or sets a safeguard aside, each time anew.

    In a variable or a file it would go on doing so, long after anybody meant it. So neither is read for it.
    """

    typed_only = True

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        return None

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return click.Option.get_error_hint(self, ctx)


def _take_ledger(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    state = session(ctx)
    if value is not None and (state.ledger is None or _typed(ctx, param)):
        state.ledger, state.ledger_typed = value, _typed(ctx, param)


def _take_signer_dir(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    state = session(ctx)
    if value is not None and (state.signer_dir is None or _typed(ctx, param)):
        state.signer_dir = value


def _take_env_file(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    try:
        session(ctx).file_environment = read_env_file(Path(value))
    except UnicodeDecodeError:
        raise Refused(f"{value}: not UTF-8 text") from None
    except ValueError as error:
        raise Refused(f"{value}: {error}") from None


def _take_config(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        session(ctx).config = read_config(value)


def _take_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        session(ctx).debug = True


def _typed(ctx: click.Context, param: click.Parameter) -> bool:
    return ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE


def common_options(*, ledger: bool) -> list[click.Option]:
    """The options that every command takes, after its name as well as before it."""
    return [*(_ledger_options() if ledger else []), *_source_options()]


def _ledger_options() -> list[click.Option]:
    return [
        Option(
            ["--ledger"],
            metavar="URL",
            expose_value=False,
            callback=_take_ledger,
            help="Where the ledger is: sqlite:///FILE or postgresql://USER@HOST/DATABASE. "
            "[default: sqlite:///replay-ledger.db]",
        ),
        Option(
            ["--signer-dir"],
            metavar="DIR",
            expose_value=False,
            callback=_take_signer_dir,
            help="Where ledgers' keys and the last checkpoints signed are kept, a folder each. "
            "[default: $XDG_STATE_HOME/replay-ledger, or ~/.local/state/replay-ledger]",
        ),
    ]


def _source_options() -> list[click.Option]:
    """Where values come from; they are looked at before all others."""
    return [
        Option(
            ["--env-file"],
            metavar="FILE",
            is_eager=True,
            expose_value=False,
            callback=_take_env_file,
            help="Read NAME=value lines for variables that the environment does not set.",
        ),
        Option(
            ["--config"],
            metavar="FILE",
            is_eager=True,
            expose_value=False,
            callback=_take_config,
            help="Take options that are not given otherwise from FILE: TOML, a table for each command.",
        ),
        Option(
            ["--debug"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_take_debug,
            help="Print a traceback, without secrets, when something fails.",
        ),
    ]


def option(*names: str, **attributes: Any) -> Callable[[F], F]:
    """``click.option`` with our class: it has its REPLAY_LEDGER_ variable too."""
    return click.option(*names, cls=Option, **attributes)


def typed_option(*names: str, **attributes: Any) -> Callable[[F], F]:
    """An option that is taken from the command line alone."""
    return click.option(*names, cls=TypedOption, **attributes)


run_argument = click.argument("run", metavar="RUN")
actor_option = option(
    "--actor",
    type=Identifier(),
    help="Who does this, as an id. [default: the name of the operating system's user]",
)
accept_clock_option = typed_option(
    "--accept-clock",
    is_flag=True,
    help="Append although this machine's clock is more than 5 minutes behind the ledger's last event.",
)
as_of_option = option(
    "--as-of",
    type=AsOf(),
    metavar="POSITION|TIME",
    help="Consume events up to this position, or up to this time (RFC 3339, or a date in UTC).",
)
no_key_option = option(
    "--no-key", is_flag=True, help="Where the ledger is made now: make no key for it, so that nothing is signed."
)
json_option = option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
out_option = option(
    "--out",
    metavar="FILE",
    help="Write to FILE instead of standard output; it is replaced only once all is written.",
)


def key_source_options(command: F) -> F:
    """The two places that a key may be read from by name."""
    from_file = option(
        "--api-key-file", metavar="FILE", help="Read the API key from FILE (one line, readable by nobody else)."
    )
    from_variable = option(
        "--api-key-env",
        metavar="NAME",
        help="Read the API key from the variable NAME. [default: REPLAY_LEDGER_API_KEY; NVIDIA_API_KEY "
        "towards NVIDIA's own host and OPENAI_API_KEY towards OpenAI's alone]",
    )
    return from_variable(from_file(command))


def key_options(command: F) -> F:
    """The three ways to say which key is sent, if any."""
    return key_source_options(option("--no-api-key", is_flag=True, help="The endpoint needs no key.")(command))
