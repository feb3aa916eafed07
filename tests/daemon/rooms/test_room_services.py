"""The services beside ``RoomService``: policy is asked by each operation, before anything of messaging begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sublet.daemon.api.room_file_models import FetchFile, UploadFile
from sublet.daemon.api.room_marks import DeleteMessage, EditMessage, Moderate, OneMessage, React
from sublet.daemon.api.room_member_models import ConfigureRoom, DeclineKnock, Knock, RemoveMember
from sublet.daemon.api.room_people_models import FindProfile, MarkRead, SearchProfiles, UpdateProfile
from sublet.daemon.api.room_presence_models import SaveDraft, SetPresence
from sublet.daemon.api.room_text_models import EditText, ShareText, TextEdit
from sublet.daemon.rooms.file_service import RoomFileService
from sublet.daemon.rooms.mark_service import RoomMarkService
from sublet.daemon.rooms.member_service import RoomMemberService
from sublet.daemon.rooms.people_service import RoomPeopleService
from sublet.daemon.rooms.presence_service import RoomPresenceService
from sublet.daemon.rooms.text_service import RoomTextService
from sublet.policy.model import Kind, Subject
from sublet.protocol.errors import LocalCode, SubletError
from support.decisions import KeptDecisions, gatekeeper
from support.pairing import side

pytestmark = pytest.mark.anyio
ROOM, REF = "01a2230a-76a2-722b-9195-a71d135900a9", "01M8HGN87651021VQE1YPQRQ0R"
BOB = RemoveMember(entity="@human:node-bob")

FILE = UploadFile(filename="a.txt", media_type="text/plain", data=b"YQ==")

CALLS: dict[type, list[Callable[[Any, Subject], Any]]] = {
    RoomMemberService: [
        lambda api, who: api.configure_room(ROOM, ConfigureRoom(name="Mine"), who),
        lambda api, who: api.knock_at_room(ROOM, Knock(), who),
        lambda api, who: api.decline_knock(ROOM, DeclineKnock(entity="@human:node-bob"), who),
        lambda api, who: api.kick_member(ROOM, BOB, who),
        lambda api, who: api.ban_entity(ROOM, BOB, who),
        lambda api, who: api.unban_entity(ROOM, BOB, who),
    ],
    RoomMarkService: [
        lambda api, who: api.get_message(OneMessage(room_id=ROOM, ref_id=REF), who),
        lambda api, who: api.add_reaction(React(room_id=ROOM, ref_id=REF, emoji="+1"), who),
        lambda api, who: api.remove_reaction(React(room_id=ROOM, ref_id=REF, emoji="+1"), who),
        lambda api, who: api.edit_message(EditMessage(room_id=ROOM, ref_id=REF, body="no"), who),
        lambda api, who: api.list_versions(OneMessage(room_id=ROOM, ref_id=REF), who),
        lambda api, who: api.delete_message(DeleteMessage(room_id=ROOM, ref_id=REF), who),
        lambda api, who: api.moderate_message(Moderate(room_id=ROOM, ref_id=REF, action="pin"), who),
    ],
    RoomPeopleService: [
        lambda api, who: api.get_profile(FindProfile(), who),
        lambda api, who: api.update_profile(UpdateProfile(body="me"), who),
        lambda api, who: api.search_profiles(SearchProfiles(query="python"), who),
        lambda api, who: api.mark_read(ROOM, MarkRead(ref_id=REF), who),
        lambda api, who: api.get_reading(ROOM, who),
    ],
    RoomFileService: [
        lambda api, who: api.upload_file(ROOM, FILE, who),
        lambda api, who: api.fetch_file(ROOM, FetchFile(blob_hash="0" * 64), who),
    ],
    RoomTextService: [
        lambda api, who: api.get_text(ROOM, REF, who),
        lambda api, who: api.edit_text(ROOM, REF, EditText(base="", edits=[TextEdit(index=0, insert="x")]), who),
        lambda api, who: api.get_access(ROOM, REF, who),
        lambda api, who: api.share_text(ROOM, REF, ShareText(mode="room_members"), who),
    ],
    RoomPresenceService: [
        lambda api, who: api.set_presence(ROOM, SetPresence(typing=True), who),
        lambda api, who: api.list_presence(ROOM, who),
        lambda api, who: api.save_draft(ROOM, SaveDraft(body="not yet"), who),
        lambda api, who: api.load_draft(ROOM, who),
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
        api = service(gatekeeper(half.journal, log=log), NoSpeaking())
        for call in CALLS[service]:
            with pytest.raises(SubletError) as refused:
                await call(api, Subject(kind, "bob"))
            assert refused.value.code is LocalCode.POLICY_DENIED
    assert [entry for entry, _ in log.entries].count("decision") == len(CALLS[service])


def test_every_operation_of_these_services_is_called_here() -> None:
    for service, calls in CALLS.items():
        operations = [name for name, method in vars(service).items() if not name.startswith("_") and callable(method)]
        assert len(operations) == len(calls), service
