"""Options that several commands share, and the values that they stand for."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer

from orthobench import api
from orthobench.cli import completion
from orthobench.errors import UsageError
from orthobench.options.arguments import BackendName, ComparedValue, DeviceName, Preset, WhichWeights
from orthobench.options.data_folder import use_data_folder
from orthobench.options.run_options import HOW, OPTIONS, WHERE, RunOptions, names_of


def _database_option(writes: bool) -> Any:
    """Return the option of a command that adds runs to its database, or of one that does not."""

    def named_or_default(db: api.Location | None) -> api.Location:
        if db is not None:
            return db
        chosen = api.names.default_database(writes)
        if chosen is api.names.OWN:  # a database that the user names is used even if it is protected
            note = f"results.db is protected: this command uses {chosen}, or the database that --db names"
            typer.echo(note, err=True)
        return chosen

    return typer.Option(
        "--db",
        callback=named_or_default,
        help="Database of runs: a file or an SQLAlchemy URL [$ORTHOBENCH_DB, or results.db].",
        parser=api.Location.of,
        metavar="TEXT",
        rich_help_panel=WHERE,
    )


DEFAULT_DATABASE: Any = None
"""No database is named, so that a command gets the default one."""
Database = Annotated[api.Location, _database_option(writes=False)]
WrittenDatabase = Annotated[api.Location, _database_option(writes=True)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=WHERE)]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Show no progress.", rich_help_panel=WHERE)]
Given = Annotated[
    list[str] | None,
    typer.Option(
        "-s",
        "--set",
        metavar="KEY=VALUE",
        help="A hyper-parameter; may be repeated.",
        autocompletion=completion.settings,
    ),
]
PresetName = Annotated[
    Preset | None,
    typer.Option(
        "--preset",
        help="paper: the paper's settings; quick: a small version for a minute or two [quick with a model or task of "
        "yours, else paper].",
    ),
]
WeightsPlace = Annotated[
    api.Location | None,
    typer.Option(
        "--weights-at",
        parser=api.Location.of,
        metavar="PLACE",
        help="Folder or URL of the weights, if it is not the folder next to the database.",
    ),
]
TrainedRun = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The run's key, or its first digits; `orthobench ls` lists them. Or a file of weights.",
        autocompletion=completion.runs,
    ),
]
NamedModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="The run's layer, such as torch.nn:LSTM or ./cell.py:MyCell: imports its code. Not for built-in models.",
        autocompletion=completion.models,
    ),
]
Which = Annotated[
    WhichWeights | None,
    typer.Option("--weights", help="Which of the run's weights [the best ones, if they are kept]."),
]
MatchParameters = Annotated[
    str | None,
    typer.Option(
        "--match-parameters",
        metavar="N|MODEL",
        help="Choose hidden sizes with this parameter count, such as 15k, or with as many parameters as the named "
        "model, which keeps its own size.",
    ),
]
Value = Annotated[
    ComparedValue,
    typer.Option(
        "--value",
        help="Compare the median of the last tenth of the tests (end), the last test (final), the best, or, if "
        "validation data judge the runs, the one at the best validation.",
    ),
]
Paired = Annotated[
    bool | None,
    typer.Option(
        "--paired/--unpaired",
        help="Pair the runs by seed, or do not. By default they are paired where a test can use that.",
        show_default=False,
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show the runs and their estimates, and train nothing.", rich_help_panel=HOW)
]


def models_option(meaning: str) -> Any:
    """Return the option of a list of models."""
    return typer.Option("-m", "--models", metavar="A,B", help=meaning, autocompletion=completion.model_list)


def _use_data_folder(context: typer.Context, folder: Path | None) -> Path | None:
    """Use the data folder until the command ends."""
    if folder is None:
        return None
    context.with_resource(use_data_folder(folder))
    return folder


_ARGUMENT = re.compile(r"`([a-z][a-z_]*)(?:=([^`]*))?`")
"""An argument of the Python API in a message, such as `jobs` or `device='cpu'`."""


def spelled(message: str) -> str:
    """Return a message with the flag of each argument that it names in backquotes, such as `device='cpu'`."""
    return _ARGUMENT.sub(_as_flag, message)


def _as_flag(argument: re.Match[str]) -> str:
    name, value = argument.groups()
    flag = _flags(name)[0]
    if value is None or value == "True":
        return flag
    with suppress(ValueError, SyntaxError):  # a text that was shortened keeps its quote
        value = str(ast.literal_eval(value))
    return f"{flag} {shlex.quote(value)}"


def _flags(name: str) -> tuple[str, ...]:
    """Return the flags of an argument: those of its record's field, or else its own name."""
    flags = OPTIONS[name][1].flags if name in OPTIONS else ()
    return flags or (f"--{name.replace('_', '-')}",)


def flag(name: str) -> Any:
    """Return an option of the records in the form that typer expects, as metadata of a parameter's type."""
    option = OPTIONS[name][1]
    return typer.Option(
        *_flags(name),
        metavar=option.metavar,
        help=option.help,
        min=option.least,
        envvar=option.variable,
        callback=_use_data_folder if name == "data_folder" else None,
        rich_help_panel=option.group,
    )


Device = Annotated[DeviceName, flag("device")]
Backend = Annotated[BackendName, flag("backend")]
DataFolder = Annotated[Path | None, flag("data_folder")]
PluginFiles = Annotated[list[Path] | None, flag("plugins")]


def with_options(record: type[RunOptions], *names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces the parameter `options` of a command by options for the fields of a record.

    Args:
        names: the fields that get an option; if empty, all fields.
    """

    def parameter(name: str) -> inspect.Parameter:
        values, option = OPTIONS[name]
        default = getattr(record, name)
        if get_origin(values) is Sequence:
            values, default = list[get_args(values)[0] if option.parse is None else str] | None, None  # type: ignore[misc]
        elif option.parse is not None:
            values = str | None
        annotation: Any = Annotated[values, flag(name)]
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    parameters = [parameter(name) for name in names or names_of(record)]
    return with_parameters("options", parameters, lambda values: _read(record, values))


def _read(record: type[RunOptions], texts: Mapping[str, Any]) -> RunOptions:
    """Build the record from the values that the user gave on the command line.

    Raises:
        UsageError: a value is invalid, or the options contradict each other.
    """
    values = {name: value for name, value in texts.items() if value is not None}
    for name, value in values.items():
        option = OPTIONS[name][1]
        if option.parse is not None:
            try:
                values[name] = list(map(option.parse, value)) if isinstance(value, list) else option.parse(value)
            except ValueError as error:
                raise UsageError(f"{_flags(name)[0]} {error}") from error
    return record(**values)


def with_parameters(
    name: str, parameters: Sequence[inspect.Parameter], read: Callable[[dict[str, Any]], Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces one parameter of a command by several.

    Args:
        name: the parameter of the command to replace.
        parameters: the parameters that replace it.
        read: computes the value of the replaced parameter from their values, which are given by name.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def replaced(**values: Any) -> None:
            own = {parameter.name: values.pop(parameter.name) for parameter in parameters}
            command(**{name: read(own)}, **values)

        # Evaluated because annotations are texts, with names that only the module of the command knows.
        signature = inspect.signature(command, eval_str=True)
        every: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            every += parameters if parameter.name == name else [parameter]
        every = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in every]
        replaced.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
        replaced.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
        return replaced

    return decorate


def print_help(context: typer.Context) -> None:
    """Print the help of a group of commands if no command is given."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def confirm(question: str) -> None:
    """Ask whether to go on.

    Raises:
        typer.Abort: the user declines, or leaves the terminal.
        UsageError: the input ends without an answer, as in a script.
    """
    try:
        agreed = typer.confirm(question)
    except typer.Abort:
        if sys.stdin is not None and sys.stdin.isatty():
            raise
        raise UsageError(f"'{question}' has no answer, because the input is no terminal: add --yes") from None
    if not agreed:
        raise typer.Abort


def split_names(values: Iterable[str], example: str = "--models scornn,lstm") -> list[str]:
    """Return the names in the values of an option such as `--models`.

    Args:
        example: the option as it should be written.

    Raises:
        UsageError: a name is empty.
    """
    texts = ",".join(values)
    names = [name.strip() for name in texts.split(",")]
    if not all(names):
        raise UsageError(f"{example.split()[0]} '{texts}' has an empty name: write {example}")
    return names


def refuse_besides_file(others: object, kept: str) -> None:
    """Refuse arguments that say what to train, if `--file` says so.

    Args:
        others: true if there are some.
        kept: the options that override the file.
    """
    if others:
        raise UsageError(f"--file names the runs already: leave everything else but {kept} out, or leave --file out")
