"""``relay.json``: what an operator sets, read anew while the relay runs."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sublet.disk.plain_file import read_plain
from sublet.messaging.relay.buckets import Rate
from sublet.messaging.relay.registry import Terms
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.relay.slot_keys import MAX_SLOTS

SETTINGS_FILE: Final = "relay.json"
MAX_SETTINGS_BYTES: Final = 64 << 10
Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9.:-]{1,253}$")]
Domain = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]


class RelaySettings(BaseModel):
    """What ``relay.json`` says. ``domain``, ``hosts`` and ``slots`` count from the next start on, all else at once."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    domain: Domain = Field(description="The domain of names: @alice:relay.example")
    hosts: Annotated[list[Host], Field(max_length=32)] = Field(
        default=[], description="Further names and addresses of this relay, for its certificate"
    )
    slots: Annotated[int, Field(ge=1, le=MAX_SLOTS)] = Field(
        default=1_000, description="How many daemons may have a certificate at one time"
    )
    registration: Literal["open", "closed"] = Field(default="open", description="Whether new names are taken")
    certificate_hours: Annotated[float, Field(gt=0, le=24 * 90)] = Field(
        default=24.0, description="How long a client's certificate lasts; it is renewed after half of it"
    )
    messages_per_second: Annotated[float, Field(gt=0, le=1e6)] = Field(
        default=500.0, description="Messages of each client in the long run; each 4 KiB of a larger one count as one"
    )
    messages_at_once: Annotated[float, Field(ge=64, le=1e7)] = Field(
        default=20_000.0, description="Messages of each client after a pause"
    )
    registrations_per_minute: Annotated[float, Field(gt=0, le=1e6)] = Field(
        default=60.0, description="Requests of one address to the registration port"
    )

    @property
    def rate(self) -> Rate:
        """How much each client may send."""
        return Rate(self.messages_per_second, self.messages_at_once)

    @property
    def desk_rate(self) -> Rate:
        """How much each address may ask for."""
        return Rate(self.registrations_per_minute / 60, self.registrations_per_minute)

    @property
    def terms(self) -> Terms:
        """What holds for registrations."""
        return Terms(self.registration == "open", timedelta(hours=self.certificate_hours))


def read_settings(directory: Path) -> RelaySettings:
    """Return what ``relay.json`` says. Blocks on the disk.

    Raises:
        SubletError: ``NOT_FOUND`` where there is no relay; ``INVALID_ARGUMENT`` naming what is wrong.
    """
    path = directory / SETTINGS_FILE
    try:
        raw = read_plain(path, MAX_SETTINGS_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise SubletError(
            LocalCode.NOT_FOUND, f"there is no relay in {directory}", "Make one: sublet relay init --domain D --dir DIR"
        ) from None
    except OSError as error:
        raise SubletError(LocalCode.UNAVAILABLE, f"{path} can't be read: {error.strerror}", "Mend it.") from None
    try:
        return RelaySettings.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"{path}: {where}: {first['msg']}", "Mend the file.") from None


def write_settings(directory: Path, settings: RelaySettings) -> None:
    """Write the settings of a new relay; those that are there stay. Blocks on the disk.

    Raises:
        OSError: they can't be written, or are there.
    """
    with (directory / SETTINGS_FILE).open("x") as file:
        json.dump(settings.model_dump(), file, indent=2)
        file.write("\n")
