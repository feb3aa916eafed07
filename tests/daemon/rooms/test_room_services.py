"""The services of rooms: policy is asked by each operation, before anything of messaging begins."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sublet.daemon.api.conversations import (
    Invite,
    Reach,
    ReadConversation,
    Say,
    SearchMessages,
    WhichConversation,
    WhichMessage,
)
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_fields import OneMessage, OneRoom
from sublet.daemon.api.room_files import FetchFile, UploadFile
from sublet.daemon.api.room_marks import DeleteMessage, EditMessage, Moderate, PurgeMessage, React
from sublet.daemon.api.room_members import ConfigureRoom, DeclineKnock, Knock, RemoveMember
from sublet.daemon.api.room_messages import AskReceipts, ListThreads, ReadMessages, SendMessage
from sublet.daemon.api.room_news import FollowNews, SetWatch, UnsetWatch, WatchRooms
from sublet.daemon.api.room_people import (
    FindProfile,
    MarkRead,
    NamedProfile,
    SearchProfiles,
    SetPicture,
    UpdateProfile,
)
from sublet.daemon.api.room_presence import SaveDraft, SetPresence
from sublet.daemon.api.room_texts import EditText, ShareText, TextEdit
from sublet.daemon.api.rooms import CreateRoom, InviteToRoom
from sublet.daemon.rooms.conversation_service import ConversationService
from sublet.daemon.rooms.file_service import RoomFileService
from sublet.daemon.rooms.mark_service import RoomMarkService
from sublet.daemon.rooms.member_service import RoomMemberService
from sublet.daemon.rooms.message_service import MessageService
from sublet.daemon.rooms.news_service import NewsService
from sublet.daemon.rooms.people_service import RoomPeopleService
from sublet.daemon.rooms.presence_service import RoomPresenceService
from sublet.daemon.rooms.room_service import RoomService
from sublet.daemon.rooms.text_service import RoomTextService
from sublet.policy.decision import Kind, Subject
from sublet.protocol.errors import LocalCode, SubletError
from support.decisions import KeptDecisions, gatekeeper
from support.pairing import side

pytestmark = pytest.mark.anyio
ROOM, REF = "01a2230a-76a2-722b-9195-a71d135900a9", "01M8HGN87651021VQE1YPQRQ0R"
BOB = RemoveMember(room_id=ROOM, entity="@human:node-bob")

FILE = UploadFile(room_id=ROOM, filename="a.txt", media_type="text/plain", data=b"YQ==")

CALLS: dict[type, list[Callable[[Any, Subject], Any]]] = {
    RoomService: [
        lambda api, who: api.whoami(Nothing(), who),
        lambda api, who: api.list_rooms(Nothing(), who),
        lambda api, who: api.create_room(CreateRoom(name="Work"), who),
        lambda api, who: api.get_room(OneRoom(room_id=ROOM), who),
        lambda api, who: api.invite_to_room(InviteToRoom(room_id=ROOM, entity="@human:node-bob"), who),
        lambda api, who: api.join_room(OneRoom(room_id=ROOM), who),
        lambda api, who: api.leave_room(OneRoom(room_id=ROOM), who),
    ],
    MessageService: [
        lambda api, who: api.send_message(SendMessage(room_id=ROOM, body="hello"), who),
        lambda api, who: api.read_messages(ReadMessages(room_id=ROOM), who),
        lambda api, who: api.list_threads(ListThreads(room_id=ROOM), who),
        lambda api, who: api.list_channels(Nothing(), who),
        lambda api, who: api.get_receipts(AskReceipts(room_id=ROOM, ref_id=REF), who),
    ],
    ConversationService: [
        lambda api, who: api.invite(Invite(room="Work", entity="@human:node-bob"), who),
        lambda api, who: api.search_messages(SearchMessages(query="flaky"), who),
        lambda api, who: api.find_profile(NamedProfile(), who),
        lambda api, who: api.reach(Reach(to="bob"), who),
        lambda api, who: api.say(Say(to="bob", body="hello"), who),
        lambda api, who: api.read_conversation(ReadConversation(room="bob"), who),
        lambda api, who: api.read_message(WhichMessage(room="bob", ref_id=REF), who),
        lambda api, who: api.list_conversations(Nothing(), who),
        lambda api, who: api.get_conversation(WhichConversation(room="bob"), who),
    ],
    NewsService: [
        lambda api, who: api.watch_rooms(WatchRooms(), who),
        lambda api, who: api.follow(FollowNews(), who),
        lambda api, who: api.get_newest(Nothing(), who),
        lambda api, who: api.list_watches(Nothing(), who),
        lambda api, who: api.set_watch(SetWatch(room="bob", ref_id=REF), who),
        lambda api, who: api.unset_watch(UnsetWatch(room="bob", ref_id=REF), who),
    ],
    RoomMemberService: [
        lambda api, who: api.configure_room(ConfigureRoom(room_id=ROOM, name="Mine"), who),
        lambda api, who: api.knock_at_room(Knock(room_id=ROOM), who),
        lambda api, who: api.decline_knock(DeclineKnock(room_id=ROOM, entity="@human:node-bob"), who),
        lambda api, who: api.kick_member(BOB, who),
        lambda api, who: api.ban_entity(BOB, who),
        lambda api, who: api.unban_entity(BOB, who),
    ],
    RoomMarkService: [
        lambda api, who: api.get_message(OneMessage(room_id=ROOM, ref_id=REF), who),
        lambda api, who: api.add_reaction(React(room_id=ROOM, ref_id=REF, emoji="+1"), who),
        lambda api, who: api.remove_reaction(React(room_id=ROOM, ref_id=REF, emoji="+1"), who),
        lambda api, who: api.edit_message(EditMessage(room_id=ROOM, ref_id=REF, body="no"), who),
        lambda api, who: api.list_versions(OneMessage(room_id=ROOM, ref_id=REF), who),
        lambda api, who: api.delete_message(DeleteMessage(room_id=ROOM, ref_id=REF), who),
        lambda api, who: api.purge_message(PurgeMessage(room_id=ROOM, ref_id=REF), who),
        lambda api, who: api.moderate_message(Moderate(room_id=ROOM, ref_id=REF, action="pin"), who),
    ],
    RoomPeopleService: [
        lambda api, who: api.get_profile(FindProfile(), who),
        lambda api, who: api.update_profile(UpdateProfile(body="me"), who),
        lambda api, who: api.get_picture(FindProfile(), who),
        lambda api, who: api.set_picture(SetPicture(data=b"YQ=="), who),
        lambda api, who: api.search_profiles(SearchProfiles(query="python"), who),
        lambda api, who: api.mark_read(MarkRead(room_id=ROOM, ref_id=REF), who),
        lambda api, who: api.get_reading(OneRoom(room_id=ROOM), who),
    ],
    RoomFileService: [
        lambda api, who: api.upload_file(FILE, who),
        lambda api, who: api.fetch_file(FetchFile(room_id=ROOM, blob_hash="0" * 64), who),
    ],
    RoomTextService: [
        lambda api, who: api.get_text(OneMessage(room_id=ROOM, ref_id=REF), who),
        lambda api, who: api.edit_text(
            EditText(room_id=ROOM, ref_id=REF, base="", edits=[TextEdit(index=0, insert="x")]), who
        ),
        lambda api, who: api.get_access(OneMessage(room_id=ROOM, ref_id=REF), who),
        lambda api, who: api.share_text(ShareText(room_id=ROOM, ref_id=REF, mode="room_members"), who),
    ],
    RoomPresenceService: [
        lambda api, who: api.set_presence(SetPresence(room_id=ROOM, typing=True), who),
        lambda api, who: api.list_presence(OneRoom(room_id=ROOM), who),
        lambda api, who: api.save_draft(SaveDraft(room_id=ROOM, body="not yet"), who),
        lambda api, who: api.load_draft(OneRoom(room_id=ROOM), who),
    ],
}


class NoSpeaking:
    """Where nobody may get to."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} before policy was asked")


@pytest.mark.parametrize("service", CALLS, ids=lambda service: service.__name__)
@pytest.mark.parametrize("kind", ["peer", "a2a", "agent"])
async def test_nobody_but_people_and_their_hosts_gets_past_policy(tmp_path: Path, kind: Kind, service: type) -> None:
    log = KeptDecisions()
    async with side(tmp_path, 1) as half:
        nothing = [NoSpeaking()] * (len(inspect.signature(service).parameters) - 1)
        api = service(gatekeeper(half.journal, log=log), *nothing)
        for call in CALLS[service]:
            with pytest.raises(SubletError) as refused:
                await call(api, Subject(kind, "bob"))
            assert refused.value.code is LocalCode.POLICY_DENIED
    assert [entry for entry, _ in log.entries].count("decision") == len(CALLS[service])


def test_every_operation_of_these_services_is_called_here() -> None:
    for service, calls in CALLS.items():
        operations = [name for name, method in vars(service).items() if not name.startswith("_") and callable(method)]
        assert len(operations) == len(calls), service
