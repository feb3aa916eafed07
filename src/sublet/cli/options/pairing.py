"""With whom ``peers add`` pairs: the maker of a link, or whoever has a name at the relay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sublet.cli.options.values import wrong_value
from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from sublet.daemon.api.peers import PeerView
    from sublet.daemon.control.client import ControlClient as Control


async def pair_with(control: Control, link: str, name: str, fingerprint: str | None) -> PeerView:
    """Pair, and return the peer.

    Args:
        control: reaches the daemon.
        link: a pairing link, or a name such as ``@bob:relay.example``.
        name: what the peer is called here.
        fingerprint: of its key, which a name needs and a link has in itself.

    Raises:
        typer.BadParameter: what was typed does not fit together.
        SubletError: ``INVALID_ARGUMENT`` for a name that none can have, and what the daemon refuses.
    """
    from pydantic import ValidationError

    from sublet.daemon.api.peers import ADD_PEER, AddPeer
    from sublet.daemon.api.relay import PAIR_BY_NAME, PairByName

    if link.startswith("@") != (fingerprint is not None):
        raise typer.BadParameter(
            "the key is needed with a name at the relay, and with nothing else", param_hint="--fingerprint"
        )
    try:
        if fingerprint is not None:
            named = PairByName(entity_id=link, name=name, fingerprint=fingerprint)
            return await control.call(PAIR_BY_NAME, named)
        return await control.call(ADD_PEER, AddPeer(link=link, name=name))
    except ValidationError as error:
        if error.errors()[0]["loc"] != ("name",):
            raise wrong_value(error, {"link": "LINK", "entity_id": "LINK", "fingerprint": "--fingerprint"}) from None
        raise no_name(f"{name!r} is no name for a peer") from None


def no_name(what: str) -> SubletError:
    """Return the refusal of what can't be the name of a peer."""
    return SubletError(
        LocalCode.INVALID_ARGUMENT,
        what,
        "A name begins with a-z or 0-9, then a-z, 0-9, dot, dash or underscore; at most 63 characters.",
    )
