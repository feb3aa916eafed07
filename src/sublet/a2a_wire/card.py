"""The agent card: what this daemon offers, where, under which key (A2A 1.0 with the fields of 0.3, AWCP 8.2)."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, TypeAlias, cast

from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from a2a.utils.signing import (
    ProtectedHeader,
    SignatureVerificationError,
    create_agent_card_signer,
    create_signature_verifier,
)
from google.protobuf.json_format import MessageToDict
from jwt.api_jwk import PyJWK
from nacl.signing import SigningKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sublet.a2a_wire.assertion import ALGORITHM
from sublet.a2a_wire.names import REST_PATH
from sublet.daemon.api.peers import AgentView
from sublet.daemon.ports.peer_link import BusAddress
from sublet.protocol.canonical import JsonValue
from sublet.protocol.ids import AGENT_ID
from sublet.protocol.messages import AWCP_URI, AWCP_VERSION
from sublet.protocol.text import clean_line
from sublet.supervisor.agent_config import MAX_AGENTS, AgentConfig
from sublet.supervisor.prompt_kind import prompt_kind

CARD_PATH = "/.well-known/agent-card.json"
CARD_CACHE_CONTROL = "public, max-age=60"
MAX_SKILLS = 64
_MAX_DESCRIPTION = 2_000
_MAX_VERSION = 40
_MAX_WORD = 20
_MAX_WHY = 200
_Port: TypeAlias = Annotated[int, Field(gt=0, lt=65536)]
_CARD_TYPE = "JOSE"
_TEXT_MODES = ["text/plain", "application/json"]
"""What is taken: text, and JSON, which an agent reads as text; an answer is text."""


def make_card(
    agents: Sequence[AgentConfig],
    *,
    url: str,
    version: str,
    node_id: str,
    key: SigningKey,
    fingerprint: str,
    bus: BusAddress | None = None,
    lacking: Mapping[str, str] | None = None,
) -> AgentCard:
    """Return the signed card.

    Args:
        agents: what is offered; the first is the default. Several agents share the card: their skills are named
            ``agent/skill``, and the extension's parameters list the agents themselves.
        url: base URL by which others reach us.
        version: of Sublet; the card's version where there is no agent.
        node_id: ours.
        key: signs the card.
        fingerprint: the key's, the ``kid`` of the signature.
        bus: where paired daemons join our bus, if there is one.
        lacking: what keeps agents from working here, by their ids.
    """
    endpoint = url.rstrip("/") + "/"
    bearer = SecurityScheme(
        http_auth_security_scheme=HTTPAuthSecurityScheme(
            scheme="bearer", description="A token from `sublet token create`, or a paired daemon's signed assertion"
        )
    )
    card = AgentCard(
        name=agents[0].display_name if agents else node_id,
        description=_description(agents),
        version=agents[0].version if len(agents) == 1 else version,
        supported_interfaces=[
            AgentInterface(url=endpoint, protocol_binding="JSONRPC", protocol_version="1.0"),
            AgentInterface(url=endpoint.rstrip("/") + REST_PATH, protocol_binding="HTTP+JSON", protocol_version="1.0"),
            # This entry makes the SDK add the fields by which 0.3 clients find us.
            AgentInterface(url=endpoint, protocol_binding="JSONRPC", protocol_version="0.3"),
        ],
        capabilities=AgentCapabilities(
            streaming=True,
            push_notifications=False,
            extensions=[_extension(agents, version, node_id, fingerprint, bus, lacking or {})],
        ),
        default_input_modes=_TEXT_MODES,
        default_output_modes=["text/plain"],
        skills=_skills(agents),
        security_schemes={"bearer": bearer},
        security_requirements=[SecurityRequirement(schemes={"bearer": StringList()})],
    )
    header = cast("ProtectedHeader", {"alg": ALGORITHM, "kid": fingerprint, "typ": _CARD_TYPE})
    private = {"d": _b64url(bytes(key)), **_public_jwk(bytes(key.verify_key))}
    return create_agent_card_signer(PyJWK.from_dict(private), header)(card)


def verify_card(card: AgentCard, public_key: bytes) -> bool:
    """Tell whether ``card`` is signed by the raw Ed25519 ``public_key``, whatever else it says about itself."""
    trusted = PyJWK.from_dict(_public_jwk(public_key))
    try:
        create_signature_verifier(lambda _kid, _jku: trusted, [ALGORITHM])(card)
    except (SignatureVerificationError, ValueError):
        return False
    return True


def offered_agents(card: AgentCard) -> list[AgentView]:
    """Return the agents that a verified card lists, bounded and cleaned: its text is still the peer's."""
    extension = next((item for item in card.capabilities.extensions if item.uri == AWCP_URI), None)
    if extension is None:
        return []
    try:
        offered = _Params.model_validate(MessageToDict(extension.params))
    except ValidationError:
        return []
    return [
        AgentView(
            id=agent.id,
            description=clean_line(agent.description, _MAX_DESCRIPTION),
            skills=[clean_line(skill) for skill in agent.skills],
            takes=clean_line(agent.takes, _MAX_WORD),
            why_not=clean_line(agent.why_not, _MAX_WHY),
        )
        for agent in offered.agents
        if AGENT_ID.match(agent.id)
    ]


def offered_bus(card: AgentCard) -> BusAddress | None:
    """Return where the peer's bus is as a verified card names it, if it does."""
    extension = next((item for item in card.capabilities.extensions if item.uri == AWCP_URI), None)
    if extension is None:
        return None
    try:
        found = _BusParams.model_validate(MessageToDict(extension.params)).sublet
    except ValidationError:
        return None
    version = clean_line(found.version, _MAX_VERSION)
    if found.bus is not None:
        return BusAddress(found.bus.port, found.bus.wire, version)
    return None if found.bus_port is None else BusAddress(found.bus_port, 1, version)


class _Bus(BaseModel):
    model_config = ConfigDict(defer_build=True, extra="ignore")

    port: _Port
    wire: Annotated[int, Field(ge=1, le=1_000_000)]


class _Sublet(BaseModel):
    """``bus_port`` is what daemons of the first form of bus say, who would call whatever has that name."""

    model_config = ConfigDict(defer_build=True, extra="ignore")

    version: str = ""
    bus: _Bus | None = None
    bus_port: _Port | None = None


class _BusParams(BaseModel):
    model_config = ConfigDict(defer_build=True, extra="ignore")

    sublet: _Sublet = _Sublet()


class _ListedAgent(BaseModel):
    model_config = ConfigDict(defer_build=True, extra="ignore")

    id: str
    description: str = ""
    skills: list[str] = Field(default_factory=list, max_length=MAX_SKILLS)
    takes: str = ""
    why_not: str = ""


class _Params(BaseModel):
    model_config = ConfigDict(defer_build=True, extra="ignore")

    agents: list[_ListedAgent] = Field(default_factory=list, max_length=MAX_AGENTS)


def _description(agents: Sequence[AgentConfig]) -> str:
    if not agents:
        return "A Sublet daemon that offers no agent at the moment"
    if len(agents) == 1:
        return agents[0].description or agents[0].display_name
    return "Several agents: " + ", ".join(agent.display_name for agent in agents)


def _extension(
    agents: Iterable[AgentConfig],
    version: str,
    node_id: str,
    fingerprint: str,
    bus: BusAddress | None,
    lacking: Mapping[str, str],
) -> AgentExtension:
    listed: list[JsonValue] = [
        {
            "id": agent.id,
            "description": agent.description,
            "skills": [skill.id for skill in agent.skills],
            "takes": prompt_kind(agent),
            **({"why_not": lacking[agent.id]} if agent.id in lacking else {}),
        }
        for agent in agents
    ]
    extension = AgentExtension(
        uri=AWCP_URI,
        description="Agent Workspace Collaboration Protocol v1: work in a directory that the caller lends",
        required=False,
    )
    extension.params.update(
        {
            "version": AWCP_VERSION,
            "transports": ["sshfs"],
            "agents": listed,
            "sublet": {
                "version": version,
                "node_id": node_id,
                "fingerprint": fingerprint,
                **({} if bus is None else {"bus": {"port": bus.port, "wire": bus.wire}}),
            },
        }
    )
    return extension


def _skills(agents: Sequence[AgentConfig]) -> list[AgentSkill]:
    skills: list[AgentSkill] = []
    for agent in agents:
        prefix = f"{agent.id}/" if len(agents) > 1 else ""
        skills.extend(
            AgentSkill(
                id=prefix + skill.id,
                name=skill.name,
                description=skill.description,
                tags=skill.tags,
                examples=skill.examples,
            )
            for skill in agent.skills
        )
        if not agent.skills:  # a card without skills is not valid
            text = agent.description or agent.display_name
            skills.append(AgentSkill(id=prefix + "work", name=agent.display_name, description=text, tags=[agent.role]))
    return skills


def _public_jwk(raw: bytes) -> dict[str, str]:
    return {"kty": "OKP", "crv": "Ed25519", "x": _b64url(raw)}


def _b64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
