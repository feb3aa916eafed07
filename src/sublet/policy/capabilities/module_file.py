"""``module.json`` of a capability: read, and checked before anything relies on it (SuperAgent 6.3)."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.faults import fault_words
from sublet.protocol.patterns import Pattern
from sublet.protocol.strict_model import FROM_LIST, read_strictly
from sublet.protocol.text import clean_line
from sublet.protocol.unique_json import unique_json

MAX_MODULE_BYTES: Final = 64 * 1024
MAX_ARGUMENTS: Final = 64
MAX_ARGUMENT_CHARS: Final = 8_192
TOOL_PREFIX: Final = "capability."
"""Before the id, in the name of the tool that policy is asked for."""

ModuleId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
MODULE_ID: Final = Pattern(r"[a-z0-9][a-z0-9._-]{0,62}")
_OWN_PROGRAM: Final = Pattern(r"\./[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_PROGRAM: Final = Pattern(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}")
Line = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f]+$")]
Argument = Annotated[str, StringConstraints(max_length=MAX_ARGUMENT_CHARS, pattern=r"^[^\x00]*$")]
Arguments = Annotated[tuple[Argument, ...], Field(max_length=MAX_ARGUMENTS), FROM_LIST]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
EnvNames = Annotated[tuple[EnvName, ...], Field(max_length=64), FROM_LIST]


class ModulePart(BaseModel):
    """Base of what is in the file: names in camelCase, and none that is not known."""

    model_config = ConfigDict(
        defer_build=True, extra="forbid", frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True
    )


class NamedModule(ModulePart):
    """What every kind of ``module.json`` begins with."""

    id: ModuleId
    name: Line
    version: Line


class CapabilityModule(NamedModule):
    """A capability.

    Args:
        command: a program: a name that is looked up on PATH, an absolute path, or ``./FILE`` in the module's directory.
        default_args: before those it is called with.
        availability_check_args: with these it has to end with status 0 where it can be used; not tried where empty.
        help_args: with these it prints how it is used.
        version_args: with these it prints its version.
        readme_file: what it is for, in the module's directory.
        cli_doc_file: its commands in detail.
        arguments: JSON Schema (Draft 2020-12) of the list of its arguments.
        environment: variables of the daemon's that it sees.
        network: whether it may use the network.
        timeout_seconds: how long one run may take.
        enabled: whether it is offered.
    """

    description: Line
    command: Line
    default_args: Arguments = ()
    availability_check_args: Arguments = ()
    help_args: Arguments = ("help",)
    version_args: Arguments = ("--version",)
    readme_file: FileName = "README.md"
    cli_doc_file: FileName = "cli.md"
    arguments: dict[str, JsonValue] | None = None
    environment: EnvNames = ()
    network: bool = False
    timeout_seconds: Annotated[float, Field(gt=0, le=600, strict=False)] = 30.0
    enabled: bool = True

    @field_validator("command")
    @classmethod
    def _a_program(cls, command: str) -> str:
        check_program(command)
        return command

    @property
    def tool(self) -> str:
        """Name of the tool that policy is asked for."""
        return TOOL_PREFIX + self.id

    @property
    def own_file(self) -> str | None:
        """The file of the module that is the program, or None where the program is elsewhere."""
        return self.command.removeprefix("./") if self.command.startswith("./") else None

    def schema_of_arguments(self) -> dict[str, Any]:
        """Return the JSON Schema of the list of arguments, bounded whatever the file says."""
        usual: dict[str, Any] = {
            "type": "array",
            "items": {"type": "string", "maxLength": MAX_ARGUMENT_CHARS},
            "maxItems": MAX_ARGUMENTS,
        }
        if self.arguments is None:
            return usual
        most = self.arguments.get("maxItems", MAX_ARGUMENTS)
        bounded = min(most, MAX_ARGUMENTS) if isinstance(most, int) else most
        return {**self.arguments, "type": "array", "maxItems": bounded}


def check_program(command: str) -> None:
    """Refuse what is no single program: neither a shell line nor a way out of the module's directory.

    Raises:
        ValueError: it is none.
    """
    if command.startswith("./"):
        if not _OWN_PROGRAM.fullmatch(command):
            raise ValueError("./FILE is a file of the module itself")
        return
    if command.startswith("/"):
        if ".." in PurePosixPath(command).parts:
            raise ValueError("a path has no '..'")
        return
    if not _PROGRAM.fullmatch(command):
        raise ValueError(
            "the command is the name of a program, an absolute path, or ./FILE; arguments go to defaultArgs"
        )


def parse_module(raw: bytes, directory: str) -> CapabilityModule:
    """Return what a capability's ``module.json`` says: ``parse_named``.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` naming what is wrong.
    """
    return parse_named(CapabilityModule, raw, directory)


ModuleT = TypeVar("ModuleT", bound=NamedModule)


def parse_named(model: type[ModuleT], raw: bytes, directory: str) -> ModuleT:
    """Return what a ``module.json`` of one kind says.

    Args:
        model: the kind.
        raw: the file.
        directory: name of the directory that it is in, which is the module's id.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` naming what is wrong.
    """
    try:
        if len(raw) > MAX_MODULE_BYTES:
            raise ValueError(f"it has more than {MAX_MODULE_BYTES} bytes")
        module = read_strictly(model, unique_json(raw))
    except ValidationError as error:
        raise bad(first_words(error, model)) from None
    except ValueError as error:
        raise bad(f"is not JSON: {error}") from None
    if module.id != directory:
        raise bad(f"id is {module.id!r}, and its directory is named otherwise")
    return module


def first_words(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """Return what pydantic found first in a document of ``model``, with its place."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "the file"
    return f"{where}: {fault_words(first, model)}"


def bad(what: str) -> SubletError:
    """Return the error of a file that can't be used."""
    return SubletError(
        LocalCode.INVALID_ARGUMENT, f"module.json: {clean_line(what, 300)}", "Mend the file; see docs/modules.md."
    )


Level = Literal[1, 2, 3]
