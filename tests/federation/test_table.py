"""The table of agents, its limits, what ours are at, and federation.toml."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.federation import limits
from sublet.federation import table as table_module
from sublet.federation.limits import Rate
from sublet.federation.own_statuses import OwnStatuses
from sublet.federation.settings import Settings, read_settings
from sublet.federation.table import AgentTable, TableFull
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.federation.addresses import AgentAddress, node_name

A, B = AgentAddress.parse("worker-1@ann.local"), AgentAddress.parse("worker-1@bob.local")
EXAMPLE = """
[agent_federation]
enabled = true
heartbeat_interval_secs = 30
agent_timeout_secs = 120
default_task_timeout_secs = 300

[agent_federation.room]
namespace = "default"
federate = true

[[agent_federation.peers]]
node_id = "kitchen.local"
url = "http://kitchen.local:7676"
trusted = true
"""


def test_the_same_id_on_two_nodes_is_two_agents() -> None:
    table = AgentTable()
    assert table.register(A, "claude", ["test", "test"], steady=1, wall=10)
    assert table.register(B, "kimi", ["review", "test"], steady=1, wall=10)
    assert not table.register(A, "claude", ["review"], steady=2, wall=11)
    assert len(table) == 2
    assert set(table.named("worker-1")) == {A.node, B.node}
    assert [entry.address for entry in table.able("review")] == [B, A]
    assert [entry.address for entry in table.able("test")] == [B]
    assert table.touch(A.node, "worker-1", "busy", steady=3, wall=12)
    assert not table.touch(A.node, "nobody", "busy", steady=3, wall=12)
    assert table.set_status(A.node, "worker-1", "busy", "t1", steady=3, wall=12)
    found = table.find(A)
    assert found is not None
    assert (found.status, found.current_task, found.seen, found.last_seen) == ("busy", "t1", 3, 12)
    assert table.remove_node(A.node) == [A]
    assert not table.remove(A)
    assert [entry.address for entry in table.all()] == [B]
    assert [*table.able("review")] == [table.find(B)]


def test_who_was_silent_too_long_is_gone_and_nobody_else() -> None:
    table = AgentTable()
    table.register(A, "claude", ["test"], steady=1, wall=0)
    table.register(B, "claude", ["test"], steady=5, wall=0)
    assert table.oldest() == 1
    assert [entry.address for entry in table.evict(5)] == [A]
    assert table.oldest() == 5
    assert table.evict(5) == []
    assert [entry.address for entry in table.able("test")] == [B]


def test_a_pass_takes_so_many_and_the_next_one_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "MAX_EVICTED", 3)
    table = AgentTable()
    for number in range(5):
        table.register(AgentAddress(f"a{number}", node_name(f"n{number % 2}")), "x", ["test"], steady=number, wall=0)
    assert len(table.evict(4.5)) == 3
    assert table.oldest() is not None
    assert len(table.evict(4.5)) == 2
    assert (len(table), table.oldest(), [*table.able("test")]) == (0, None, [])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans()), max_size=40))
def test_an_id_leads_to_all_nodes_that_have_it_and_to_no_other(steps: list[tuple[int, int, bool]]) -> None:
    table, there = AgentTable(), set[tuple[str, str]]()
    for agent, node, comes in steps:
        address = AgentAddress(f"a{agent}", node_name(f"n{node}"))
        if comes:
            assert table.register(address, "x", [], steady=0, wall=0) is ((address.agent_id, address.node) not in there)
            there.add((address.agent_id, address.node))
        else:
            assert table.remove(address) is ((address.agent_id, address.node) in there)
            there.discard((address.agent_id, address.node))
        for at in range(3):
            assert {*table.named(f"a{at}")} == {name for one, name in there if one == f"a{at}"}
            assert all(entry.address.agent_id == f"a{at}" for entry in table.named(f"a{at}").values())
    assert set(table._ids) == {one for one, _ in there}


def test_the_table_has_room_for_so_many_of_a_node_and_of_all() -> None:
    table = AgentTable(most=3, most_of_node=2)
    for number in range(2):
        table.register(AgentAddress(f"a{number}", node_name("ann")), "x", [], steady=0, wall=0)
    with pytest.raises(TableFull):
        table.register(AgentAddress("a2", node_name("ann")), "x", [], steady=0, wall=0)
    table.register(AgentAddress("a0", node_name("bob")), "x", [], steady=0, wall=0)
    with pytest.raises(TableFull):
        table.register(AgentAddress("a0", node_name("cat")), "x", [], steady=0, wall=0)


def test_who_has_many_agents_that_can_something_leaves_room_for_the_others() -> None:
    table = AgentTable()
    for number in range(5):
        table.register(AgentAddress(f"a{number}", node_name("ann")), "x", ["test"], steady=0, wall=0)
    table.register(B, "x", ["test"], steady=0, wall=0)
    assert [str(entry.address) for entry in table.able("test", 2)] == ["a0@ann", "a1@ann", str(B)]


def test_a_bucket_fills_as_time_goes_on_and_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    rate = Rate(1, 2, lambda: now[0])
    assert [rate.take("a") for _ in range(3)] == [True, True, False]
    now[0] = 1
    assert [rate.take("a"), rate.take("a"), rate.take("b")] == [True, False, True]
    monkeypatch.setattr(limits, "MAX_BUCKETS", 2)
    for name in "cde":
        rate.take(name)
    assert len(rate._left) == 2


def test_statuses_follow_tasks_and_tell_each_node_of_its_own() -> None:
    statuses = OwnStatuses()
    assert statuses.told("a", "n1", busy=False) == ("idle", None)
    assert statuses.told("a", "n1", busy=True) == ("busy", None)
    statuses.begin("a", "t1", ("n1", "r1"))
    statuses.begin("a", "t2", ("n2", "r2"))
    assert statuses.told("a", "n1", busy=False) == ("busy", "t1")
    assert statuses.told("a", "n3", busy=False) == ("busy", None)
    statuses.end("a", ("n1", "r1"), failed=True)
    assert statuses.told("a", "n2", busy=False) == ("busy", "t2")
    statuses.end("a", ("n2", "r2"), failed=True)
    assert statuses.told("a", "n2", busy=False) == ("error", None)
    statuses.recover()
    assert statuses.told("a", "n2", busy=False) == ("idle", None)
    statuses.begin("a", "t3", ("n1", "r3"))
    statuses.begin("a", "t3", ("n2", "r4"))  # which calls its task as the first one does
    statuses.end("a", ("n1", "r3"), failed=False)
    assert statuses.told("a", "n1", busy=False) == ("busy", None)
    statuses.end("a", ("n2", "r4"), failed=False)
    assert statuses.told("a", "n1", busy=False) == ("idle", None)
    for number in range(10):
        statuses.begin(f"nobody-{number}", "t", ("n1", f"n{number}"))
        statuses.end(f"nobody-{number}", ("n1", f"n{number}"), failed=False)
    assert not statuses._states
    assert not statuses._tasks


def test_the_example_of_the_specification_is_read_and_its_fields_count(tmp_path: Path) -> None:
    file = tmp_path / "federation.toml"
    assert read_settings(file) == Settings()
    file.write_text(EXAMPLE)
    settings = read_settings(file)
    assert settings.trusts("kitchen.local", "SHA256:" + "A" * 43)
    assert settings.peers[0].url == "http://kitchen.local:7676"
    file.write_text(EXAMPLE.replace("trusted = true", f'trusted = false\nfingerprint = "SHA256:{"A" * 43}"'))
    settings = read_settings(file)
    assert not settings.trusts("kitchen.local", "SHA256:" + "A" * 43)
    assert not settings.trusts("living.local", "SHA256:" + "A" * 43), "the same key by another name"
    assert settings.trusts("living.local", "SHA256:" + "B" * 43)
    assert settings.misnamed("kitchen.local", "SHA256:" + "B" * 43)


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("[agent_federation]\nenabled = 1\n", 2, "agent_federation.enabled"),
        ("[agent_federation]\n\nheartbeat_intervall = 1\n", 3, "heartbeat_intervall"),
        ("[agent_federation]\nagent_timeout_secs = 5\n", 1, "agent_timeout_secs has to be more"),
        ('[agent_federation.room]\nfederate = true\nnamespace = "A B"\n', 3, "namespace"),
        ("[other]\nx = 1\n", 1, "other"),
        (
            '[[agent_federation.peers]]\nnode_id = "a"\n[[agent_federation.peers]]\nnode_id = "b"\nurl = "ftp://x"\n',
            5,
            "url",
        ),
        ('[[agent_federation.peers]]\nnode_id = "a"\n[[agent_federation.peers]]\nnode_id = "a"\n', 1, "twice"),
        ('[[agent_federation.peers]]\nnode_id = "a"\nfingerprint = "x"\n', 3, "fingerprint"),
        ('[agent_federation]\nnode_id = "../x"\n', 2, "node_id"),
    ],
)
def test_an_error_names_file_line_and_key(tmp_path: Path, text: str, line: int, key: str) -> None:
    file = tmp_path / "federation.toml"
    file.write_text(text)
    with pytest.raises(SubletError) as refused:
        read_settings(file)
    assert refused.value.code is LocalCode.INVALID_ARGUMENT
    assert f"federation.toml:{line}:" in refused.value.message
    assert key in refused.value.message


def test_what_is_no_toml_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "federation.toml"
    file.write_text("[agent_federation]\nenabled = \n")
    with pytest.raises(SubletError, match="line 2"):
        read_settings(file)
    file.write_text(f"[agent_federation]\nheartbeat_interval_secs = {'9' * 5_000}\n")
    with pytest.raises(SubletError, match="no TOML"):
        read_settings(file)
