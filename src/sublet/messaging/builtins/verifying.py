"""Identity operations that wait: keys made, names at relays, and peers that show who they are (ezagent 7.4, 7.5)."""

from __future__ import annotations

import os
from functools import partial
from typing import NoReturn

from sublet.messaging.declaring.asking import AskingContext
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.schema.fields import Fields
from sublet.protocol.encoding import b64
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.challenge import NONCE_BYTES, Challenge, encode_challenge, parse_response
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.identity import EntityRecord
from sublet.protocol.ezagent.ids import EntityId, is_entity_id
from sublet.protocol.times import rfc3339_of_ms


async def init(context: AskingContext, name: str) -> Fields:
    """Give this daemon another entity, ``@name:`` and its node id: make its keys, or load those that it has.

    Raises:
        SubletError: the name is taken or none; ``UNAVAILABLE``: nobody here vouches for another entity.
    """
    entity = await context.make_entity(name)
    return await context.engine(lambda inside: shown(inside, entity))


def register(context: OperationContext) -> NoReturn:
    """Refuse: names at relays are of daemons, whose person registers them, and no entity needs one.

    Raises:
        SubletError: ``UNAVAILABLE``.
    """
    raise SubletError(
        LocalCode.UNAVAILABLE,
        f"{context.entity} can't be registered: names at a relay are of daemons",
        "None is needed: its domain is this daemon's key, by which everybody checks it; for that, sublet register.",
    )


async def verify_peer(context: AskingContext, entity_id: EntityId) -> Fields:
    """Let an entity show that it is there and holds its key, and keep the key.

    Args:
        context: who asks.
        entity_id: who shall show it.

    Returns:
        ``identity.get_pubkey`` of it, with ``verified_at``.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: it is one of ours, or no entity; ``PEER_UNREACHABLE``: nobody has answered;
            ``KEY_CHANGED``: none of the answers is of that entity.
    """
    if not is_entity_id(entity_id):
        raise SubletError(LocalCode.INVALID_ARGUMENT, "this is the id of no entity", "Such as @human:NODE.")
    challenge, raw = await context.engine(partial(_challenge, entity_id=entity_id))
    answers = await context.ask(challenge.key, raw)
    if not answers:
        raise SubletError(
            LocalCode.PEER_UNREACHABLE,
            f"{entity_id} did not answer",
            "Is its daemon running, and paired with this one?",
        )
    return await context.engine(partial(_verified, challenge=challenge, answers=answers))


def _challenge(context: OperationContext, entity_id: EntityId) -> tuple[Challenge, bytes]:
    local = context.parts.keyring.local
    if entity_id in local:
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"{entity_id} is one of ours", "Its key is in this daemon.")
    challenge = Challenge(context.entity, entity_id, os.urandom(NONCE_BYTES), context.parts.now_ms())
    return challenge, encode_challenge(
        challenge, local[context.entity].record, context.parts.keyring.key(context.entity)
    )


def _verified(context: OperationContext, challenge: Challenge, answers: list[bytes]) -> Fields:
    for raw in answers:
        try:
            record = parse_response(raw, challenge)
            context.parts.intake.learn(record.encode())
            parse_response(raw, challenge, context.parts.keyring.speaking(record.entity_id))
        except Refused:  # also of a device that was removed, and shows a record from before
            continue
        known = context.parts.keyring.record(record.entity_id)
        if known is None or known.version <= record.version:  # an older one may be of a key that was given up
            return {**_view(record), "verified_at": rfc3339_of_ms(context.parts.now_ms())}
    raise SubletError(
        LocalCode.KEY_CHANGED,
        f"whoever answered for {challenge.responder} does not hold its key",
        "Trust nothing that comes from there; look at who is on this network.",
    )


def shown(context: OperationContext, entity: EntityId) -> Fields:
    """Return an entity's record for people.

    Raises:
        SubletError: ``NOT_FOUND``: it is not known here.
    """
    record = context.parts.keyring.record(entity)
    if record is None:
        raise SubletError(
            LocalCode.NOT_FOUND, f"nobody here knows {entity}", "Its daemon may be away; try again later."
        )
    return _view(record)


def _view(record: EntityRecord) -> Fields:
    return {
        "entity_id": record.entity_id,
        "kind": str(record.kind),
        "public_key": b64(record.key),
        "devices": [device.name for device in record.devices],
    }
