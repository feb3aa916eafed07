"""Commands about who may do what: pair, peers, token, allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.help import Sectioned, listing
from sublet.cli.options.completion import complete_peer
from sublet.cli.options.given_text import text_of
from sublet.cli.options.pairing import no_name, pair_with
from sublet.cli.options.values import JsonFlag, directory_path, duration
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.protocol.text import clean_name

if TYPE_CHECKING:
    from sublet.daemon.api.peers import PairLink, PairLinkView, PeerView
    from sublet.daemon.api.tokens import TokenView
    from sublet.daemon.control.client import ControlClient as Control

PeerArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the peer.", autocompletion=complete_peer, show_default=False)
]

MAX_LINK_CHARS = 4_096

peers = listing("peers", "Paired daemons: who may call, and whom you may lend to.")
token = listing("token", "Bearer tokens for plain A2A clients.")


def pair(
    ctx: typer.Context,
    ttl: Annotated[
        int | None, typer.Option(metavar="TIME", parser=duration, help="How long the link works. [default: 10m]")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until somebody uses it, and tell who did.", show_default=False)
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make a one-time link for another daemon to pair with.

    Hand it over in private: whoever uses it first is paired. `sublet peers links` tells who that was.
    """
    if wait and as_json:
        raise typer.BadParameter(
            "one JSON value has the link, which is used later: see `sublet events --kind peer_paired --follow --json`",
            param_hint="--wait",
        )
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.peers import CREATE_PAIR_LINK, CreatePairLink

        request = CreatePairLink() if ttl is None else CreatePairLink(ttl_seconds=ttl)
        link = await control.call(CREATE_PAIR_LINK, request)
        if as_json:
            screen.emit(link.model_dump(mode="json"))
            return
        # the link alone on stdout, whole, so that it can be copied and piped
        screen.out.print(link.link, soft_wrap=True)
        from sublet.cli.rendering.delegations import local_time

        screen.note(f"Works once, until {local_time(link.expires_at)}.")
        from urllib.parse import urlsplit

        from sublet.daemon.net.addresses import is_loopback

        if is_loopback(urlsplit(link.a2a_url).hostname or ""):
            screen.note("For a daemon on this machine:  sublet peers add LINK --name NAME")
            screen.note("Other machines don't reach this one: it listens to its own alone, without --a2a 0.0.0.0:8642")
        else:
            screen.note("On the other machine:  sublet peers add LINK --name NAME")
        screen.note(f"This daemon's key:  {link.fingerprint}")
        screen.note("It gets the name that it calls itself by, unless that is another's here: see `sublet status`.")
        if wait:
            from sublet.cli.rendering.peers import use_of

            screen.show(use_of(await _used(control, link)))
        else:
            screen.note("Who used it:  sublet peers links")

    run(ctx, screen, body)


@peers.command(cls=Sectioned, name="add")
def peers_add(
    ctx: typer.Context,
    link: Annotated[
        str,
        typer.Argument(
            metavar="LINK",
            help="What `sublet pair` printed over there, or its name at the relay; - reads it from stdin.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="What you call the peer: a-z, 0-9, dot, dash, underscore.")
    ],
    fingerprint: Annotated[
        str | None,
        typer.Option(metavar="SHA256:KEY", help="Of its key, where LINK is a name at the relay.", show_default=False),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Pair with the daemon that made LINK. Both sides pin each other's key.

    With a name at the relay, such as @bob:relay.example, both sides do this, each with the key of the other.
    """
    screen = Screen(as_json=as_json)
    # Others on this machine see the arguments of a program, and a link lets whoever has it first be paired.
    link = text_of(link, MAX_LINK_CHARS, "the link").strip()

    async def body(control: Control) -> None:
        peer = await pair_with(control, link, name, fingerprint)
        if as_json:
            screen.emit(peer.model_dump(mode="json"))
            return
        from sublet.cli.rendering.peers import peer_details

        renamed = f", which was {peer.was} until now" if peer.was else ""
        screen.show(f"Paired with {peer.name}{renamed}.", peer_details(peer))
        if fingerprint is not None:
            screen.note(f"Invite its person to a room: sublet room invite ROOM @human:{peer.node_id}")
        else:
            screen.note(f'Lend it a directory: sublet delegate DIR --to {peer.name} "PROMPT"')

    run(ctx, screen, body)


@peers.command(cls=Sectioned, name="list")
def peers_list(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """List all paired daemons. Each is asked for its agents now, and has 3 s to answer."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        known = await _all(control)
        if as_json:
            screen.emit({"peers": [peer.model_dump(mode="json") for peer in known]})
        elif known:
            from sublet.cli.rendering.peers import peer_table

            screen.show(peer_table(known))
        else:
            screen.note("No peers yet. Run `sublet pair` on one machine and `sublet peers add` on the other.")

    run(ctx, screen, body)


@peers.command(cls=Sectioned, name="show")
def peers_show(ctx: typer.Context, name: PeerArgument, as_json: JsonFlag = False) -> None:
    """Show one peer: its key, its address, its agents."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        peer = await _find(control, name)
        if as_json:
            screen.emit(peer.model_dump(mode="json"))
            return
        from sublet.cli.rendering.peers import peer_details

        screen.show(peer_details(peer))

    run(ctx, screen, body)


@peers.command(cls=Sectioned, name="links")
def peers_links(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """List the last pairing links, and who used each."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.operation import Nothing
        from sublet.daemon.api.peers import LIST_PAIR_LINKS

        made = await control.call(LIST_PAIR_LINKS, Nothing())
        if as_json:
            screen.emit({"links": [link.model_dump(mode="json") for link in made]})
        elif made:
            from sublet.cli.rendering.peers import link_table

            screen.show(link_table(made))
        else:
            screen.note("No links were made here. `sublet pair` makes one.")

    run(ctx, screen, body)


@peers.command(cls=Sectioned, name="rename")
def peers_rename(
    ctx: typer.Context,
    name: PeerArgument,
    new_name: Annotated[
        str, typer.Argument(metavar="NEW", help="What you call it from now on: a-z, 0-9, dot, dash, underscore.")
    ],
    as_json: JsonFlag = False,
) -> None:
    """Call a peer something else here. Its key and what is under way with it stay.

    Refused where a rule, a grant or an agent knows the peer by its name, or another by the new one. Records of what was
    lent show the name that it had then.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from pydantic import ValidationError

        from sublet.daemon.api.peers import RENAME_PEER, RenamePeer

        try:
            request = RenamePeer(name=name, new_name=new_name)
        except ValidationError as error:
            wrong = name if error.errors(include_url=False, include_input=False)[0]["loc"] == ("name",) else new_name
            raise no_name(f"{wrong!r} is no peer name") from None
        peer = await control.call(RENAME_PEER, request)
        if as_json:
            screen.emit(peer.model_dump(mode="json"))
        else:
            screen.show(f"{clean_name(name)} is called {peer.name} here from now on.")

    run(ctx, screen, body)


@peers.command(cls=Sectioned, name="remove")
def peers_remove(ctx: typer.Context, name: PeerArgument, as_json: JsonFlag = False) -> None:
    """Forget a peer's key, and with it all its access."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.peers import REMOVE_PEER, OnePeer

        peer = await control.call(REMOVE_PEER, OnePeer(name=name))
        if as_json:
            screen.emit(peer.model_dump(mode="json"))
        else:
            screen.show(f"Removed {peer.name} ({peer.fingerprint}). It may do nothing here any more.")

    run(ctx, screen, body)


@token.command(cls=Sectioned, name="create")
def token_create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the client is called.", show_default=False)],
    ttl: Annotated[
        int | None,
        typer.Option(metavar="TIME", parser=duration, help="How long it works. [default: until revoked]"),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a token for a plain A2A client; it is shown this once."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.tokens import CREATE_TOKEN, CreateToken

        made = await control.call(CREATE_TOKEN, CreateToken(name=name, ttl_seconds=ttl))
        if as_json:
            screen.emit(made.model_dump(mode="json"))
            return
        screen.out.print(made.token or "", soft_wrap=True)
        screen.note("Shown this once. The client sends it as: Authorization: Bearer TOKEN")

    run(ctx, screen, body)


@token.command(cls=Sectioned, name="list")
def token_list(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """List tokens, without their secrets."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.operation import Nothing
        from sublet.daemon.api.tokens import LIST_TOKENS

        known = await control.call(LIST_TOKENS, Nothing())
        if as_json:
            screen.emit({"tokens": [_without_secret(entry) for entry in known]})
        elif known:
            from sublet.cli.rendering.peers import token_table

            screen.show(token_table(known))
        else:
            screen.note("No tokens. `sublet token create NAME` makes one.")

    run(ctx, screen, body)


@token.command(cls=Sectioned, name="revoke")
def token_revoke(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.", show_default=False)],
    as_json: JsonFlag = False,
) -> None:
    """Make a token useless."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.tokens import REVOKE_TOKEN, OneToken

        revoked = await control.call(REVOKE_TOKEN, OneToken(name=name))
        if as_json:
            screen.emit(_without_secret(revoked))
        else:
            screen.show(f"Revoked {revoked.name}.")

    run(ctx, screen, body)


def allow(
    ctx: typer.Context,
    directory: Annotated[
        str | None, typer.Argument(metavar="DIR", help="Directory; without one, list.", show_default=False)
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the allowed directories.", show_default=False)] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take DIR off the list.", show_default=False)] = False,
    as_json: JsonFlag = False,
) -> None:
    """Let agents in MCP hosts lend directories below DIR.

    Beyond what their host opened, nothing else is theirs to lend, not even your home.
    """
    if remove and directory is None:
        raise typer.BadParameter("--remove needs the directory to take off the list")
    if list_ and directory is not None:
        raise typer.BadParameter("--list shows all that is allowed, and goes without DIR")
    screen = Screen(as_json=as_json)
    path = None if directory is None else directory_path(directory)

    async def body(control: Control) -> None:
        from sublet.daemon.api.lend_roots import ADD_LEND_ROOT, LIST_LEND_ROOTS, REMOVE_LEND_ROOT, LendRoot
        from sublet.daemon.api.operation import Nothing

        if path is None or list_:
            roots = await control.call(LIST_LEND_ROOTS, Nothing())
        else:
            roots = await control.call(REMOVE_LEND_ROOT if remove else ADD_LEND_ROOT, LendRoot(path=path))
        if as_json:
            screen.emit({"lend_roots": roots})
        elif roots:
            for root in roots:
                screen.out.print(clean_name(root), soft_wrap=True)
        else:
            screen.note("No directory is allowed. Agents in MCP hosts may lend only what their host opened.")

    run(ctx, screen, body)


async def _all(control: Control) -> list[PeerView]:
    from sublet.daemon.api.operation import Nothing
    from sublet.daemon.api.peers import SHOW_DIRECTORY

    return (await control.call(SHOW_DIRECTORY, Nothing())).peers


async def _used(control: Control, link: PairLink) -> PairLinkView:
    """Wait until a link is used or over, and return what became of it."""
    import time
    from contextlib import aclosing

    import anyio

    from sublet.daemon.api.events import FOLLOW_EVENTS, FollowEvents
    from sublet.daemon.api.operation import Nothing
    from sublet.daemon.api.peers import LIST_PAIR_LINKS
    from sublet.protocol.events import EventKind
    from sublet.protocol.times import unix_seconds

    news = control.follow(FOLLOW_EVENTS, FollowEvents(cursor=link.cursor, kind=EventKind.PEER_PAIRED))
    with anyio.move_on_after(unix_seconds(link.expires_at) - time.time()):
        async with aclosing(news) as coming:
            async for event in coming:
                if event.data.get("link") == link.id:
                    break
    return next(one for one in await control.call(LIST_PAIR_LINKS, Nothing()) if one.id == link.id)


async def _find(control: Control, name: str) -> PeerView:
    known = await _all(control)
    for peer in known:
        if peer.name == name:
            return peer
    from sublet.daemon.peering.peers import unknown_peer

    raise unknown_peer(name, [peer.name for peer in known])


def _without_secret(entry: TokenView) -> dict[str, object]:
    """Return a token's facts; whatever the daemon sent, no secret is printed twice."""
    return {**entry.model_dump(mode="json"), "token": None}
