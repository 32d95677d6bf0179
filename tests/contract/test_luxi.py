"""Ganeti's local query socket over a small fleet (contracts/ganeti-query, 9), by plain bytes."""

import asyncio
import json
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fleetlight.api.luxi import frames, server
from fleetlight.api.luxi.calls import LuxiCalls, Result
from fleetlight.api.luxi.server import LuxiSocketError, serving_luxi
from fleetlight.cells.database.engines import writing
from fleetlight.manager.operations.actions.vocabulary import VOCABULARY
from fleetlight.manager.operations.jobs.model import NewJob, NewOperation
from fleetlight.manager.operations.jobs.queue import add_jobs
from tests.contract.compute_fleet import CELLS, Api, BrokenCells, ComputeFleet, compute_fleet, searching

Answer = dict[str, Any]


@contextmanager
def small_fleet(folder: Path) -> Iterator[ComputeFleet]:
    with compute_fleet(folder) as fleet:
        fleet.add_hosts()
        for number, cell in enumerate(CELLS):
            fleet.create(cell, display_name=f"web{number}.{cell}.example.com", node=f"{cell}-host0", tags=["b", "a"])
        fleet.index()
        yield fleet


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    """For tests that only read it."""
    with small_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        yield fleet


@pytest.fixture
def own_fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    """For a test that changes it."""
    with small_fleet(tmp_path) as fleet:
        yield fleet


class Socket:
    """The socket of an API. Its `talk` opens one for as long as a scenario takes."""

    def __init__(self, api: Api, path: Path) -> None:
        self.path = path
        self._api = api
        self.calls = LuxiCalls(api.application.query_engine, api.services.writes, api.services.admission)

    def talk(self, scenario: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            async with serving_luxi(self.path, self.calls):
                reader, writer = await asyncio.open_unix_connection(self.path, limit=2**24)
                try:
                    return await asyncio.wait_for(scenario(reader, writer), 60)
                finally:
                    writer.close()
                    with suppress(OSError):
                        await writer.wait_closed()

        return self._api.run(run())

    def ask(self, method: str, *arguments: Any) -> Answer:
        async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer:
            writer.write(message(method, *arguments))
            return await answer(reader)

        found: Answer = self.talk(scenario)
        return found

    def result(self, method: str, *arguments: Any) -> Any:
        found = self.ask(method, *arguments)
        assert found["success"], found
        return found["result"]


@pytest.fixture
def luxi(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Socket:
    return Socket(api, tmp_path_factory.mktemp("s") / "s")


@pytest.fixture
def own_luxi(own_fleet: ComputeFleet, tmp_path_factory: pytest.TempPathFactory) -> Socket:
    return Socket(own_fleet.api(), tmp_path_factory.mktemp("s") / "s")


def message(method: str, *arguments: Any) -> bytes:
    return json.dumps({"method": method, "args": arguments, "version": 3010000}).encode() + b"\3"


async def answer(reader: asyncio.StreamReader) -> Answer:
    text = await reader.readuntil(b"\3")
    found: Answer = json.loads(text[:-1])
    assert found.keys() - {"complete"} == {"success", "result"}
    return found


def test_query_answers_with_definitions_and_rows(luxi: Socket) -> None:
    found = luxi.result("Query", "instance", ["name", "os", "nope"], ["=~", "name", "^web1"])
    assert [field["kind"] for field in found["fields"]] == ["text", "text", "unknown"]
    assert found["data"] == [[[0, "web1.east.example.com"], [3, None], [1, None]]]
    assert len(luxi.result("Query", "node", ["name"], None)["data"]) == 6
    assert luxi.result("Query", "instance", [], None)["data"] == [[], [], []]


def test_fields_of_all_types_are_told(luxi: Socket) -> None:
    assert len(luxi.result("QueryFields", "job", None)["fields"]) == 18
    assert luxi.result("QueryFields", "lock", ["mode", "x"])["fields"][1]["kind"] == "unknown"


def test_names_alone_are_looked_up_in_their_order(luxi: Socket) -> None:
    wanted = ["|", ["=", "name", "web2"], ["==", "name", "WEB0.north"], ["=", "name", "web2"]]
    assert [row[0][1][:4] for row in luxi.result("Query", "instance", ["name"], wanted)["data"]] == [
        "web2",
        "web0",
        "web2",
    ]
    refused = luxi.ask("Query", "instance", ["name"], ["=", "name", "web"])
    assert refused == {
        "success": False,
        "result": ["OpPrereqError", ["Instance name web not found", "unknown_entity"]],
    }
    # No lookup, but a filter.
    assert luxi.result("Query", "instance", ["name"], ["&", ["=", "name", "web"]])["data"] == []


def test_abbreviation_of_several_names_is_refused(own_fleet: ComputeFleet, own_luxi: Socket) -> None:
    own_fleet.create("north", display_name="web1.north.example.com")
    own_fleet.index("north")
    refused = own_luxi.ask("Query", "instance", ["name"], ["=", "name", "web1"])
    assert refused["result"] == ["OpPrereqError", ["Instance name web1 has multiple matches", "unknown_entity"]]


def test_old_calls_have_values_alone(luxi: Socket) -> None:
    [[name, system, tags, uuid]] = luxi.result("QueryInstances", ["web1"], ["name", "os", "tags", "uuid"], False)
    assert (name, system, tags) == ("web1.east.example.com", None, ["b", "a"])
    assert luxi.result("QueryInstances", [uuid, "nothing"], ["name"], False) == [[name]]
    assert len(luxi.result("QueryInstances", None, ["name"], False)) == 3
    assert len(luxi.result("QueryNodes", [], ["name"], False)) == 6
    assert luxi.result("QueryGroups", ["default"], ["name", "cell"], False) == [
        ["default", cell] for cell in sorted(CELLS)
    ]
    assert luxi.result("QueryNetworks", [], ["name"], False) == []
    assert luxi.result("QueryExports", [], False) == []
    assert luxi.result("QueryFilters", None, ["uuid"]) == []


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (
            ("QueryNodes", [], ["name", "a", "b"], False),
            ["OpPrereqError", ["Unknown output fields selected: a, b", "wrong_input"]],
        ),
        (("QueryNodes", [], ["name"], True), ["OpPrereqError", ["Sync queries are not allowed", "wrong_input"]]),
        (("QueryJobs", [-1], ["id"]), ["GenericError", ["Invalid value for job ID: -1"]]),
        (("Query", "job", ["id"], ["==", "id", -1]), ["GenericError", ["Invalid value for job ID: -1"]]),
        (("Query", "node", ["name"], ["==", "nam", 1]), ["ParameterError", ["Unknown field 'nam'"]]),
        (("QueryTags", "instance", "none"), ["OpPrereqError", ["Instance name none not found", "unknown_entity"]]),
        (("QueryTags", "nodegroup", "none"), ["OpPrereqError", ["NodeGroup name none not found", "unknown_entity"]]),
        (("WaitForJobChange", 7, ["status"], None, None, 1.0), ["JobLost", ["Can't load job file"]]),
        (("SubmitJob", []), ["GenericError", ["SubmitJob changes something, and this socket only reads"]]),
    ],
)
def test_refusal_is_an_exception_for_the_client(luxi: Socket, call: tuple[Any, ...], result: Any) -> None:
    assert luxi.ask(*call) == {"success": False, "result": result}


def test_tags_values_and_cluster(luxi: Socket) -> None:
    assert luxi.result("QueryTags", "instance", "web1") == ["a", "b"]
    assert luxi.result("QueryTags", "cluster", "") == []
    assert luxi.result("QueryConfigValues", ["cluster_name", "drain_flag", "x"]) == ["fleetlight", False, None]
    assert luxi.result("QueryClusterInfo")["name"] == "fleetlight"


def test_job_is_found_and_waited_for(own_fleet: ComputeFleet, own_luxi: Socket) -> None:
    [[uuid]] = own_luxi.result("QueryInstances", ["web0"], ["uuid"], False)
    with writing(own_fleet.engine("north")) as connection:
        add_jobs(connection, VOCABULARY, [NewJob([NewOperation("os-stop", {"origin": {}}, uuid)])], 1_000_000)
    assert own_luxi.result("QueryJobs", ["10001", 5], ["id", "status"]) == [[10001, "queued"], [5, None]]
    assert own_luxi.result("Query", "job", ["id", "status"], ["=", "id", 5])["data"] == [[[0, 5], [3, None]]]
    assert own_luxi.result("WaitForJobChange", 10001, ["status"], None, None, 1) == [["queued"], []]
    assert own_luxi.result("WaitForJobChange", "10001", ["status"], ["queued"], 0, 0.1) == "nochange"
    own_fleet.work()
    assert own_luxi.result("WaitForJobChange", 10001, ["status"], ["success"], 0, 80) == [["success"], []]


def test_requests_of_one_connection_are_answered_one_after_the_other(luxi: Socket) -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[Answer]:
        both = message("QueryConfigValues", ["cluster_name"]) + message("QueryTags", "cluster", "")
        for part in (both[:10], both[10:70], both[70:]):
            writer.write(part)
            await writer.drain()
        return [await answer(reader), await answer(reader)]

    assert [each["result"] for each in luxi.talk(scenario)] == [["fleetlight"], []]


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\3",
        b"[]\3",
        b"\xff\3",
        b'{"method": "Query", "args": ["\xff"]}\3',
        b'{"method": "Query"}\3',
        b'{"method": 1, "args": []}\3',
        b'{"method": "Nothing", "args": []}\3',
        b'{"method": "Query", "args": ["instance"]}\3',
        b'{"method": "Query", "args": ["instance", "name", null]}\3',
        b'{"method": "Query", "args": ["nothing", ["name"], null]}\3',
        b'{"method": "Query", "args": ["node", ["name"], []]}\3',
        b'{"method": "Query", "args": ["node", ["name"], ["?"]]}\3',
        b'{"method": "Query", "args": ["node", ["name"], [["=="], "name", "x"]]}\3',
        b'{"method": "Query", "args": ["node", ["name"], ["=~", "name", "("]]}\3',
        b'{"method": "QueryTags", "args": ["what", "x"]}\3',
        b"[" * 100_000 + b"\3",
        b"x" * (10 * 1024 * 1024 + 10) + b"\3",
    ],
    ids=lambda sent: sent[:45].decode(errors="replace"),
)
def test_what_cannot_be_parsed_is_answered_and_ends_the_connection(luxi: Socket, sent: bytes) -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[Answer, bytes]:
        writer.write(sent)
        return await answer(reader), await reader.read()

    said, rest = luxi.talk(scenario)
    assert not said["success"]
    assert said["result"].startswith("Failed to parse request: ")
    assert rest == b""


async def unfinished(path: Path, size: int) -> asyncio.StreamWriter:
    """A connection with a message that has so many bytes, and no end."""
    _, writer = await asyncio.open_unix_connection(path)
    writer.write(b'{"method": "' + b"x" * size)
    await writer.drain()
    return writer


def test_unfinished_messages_of_all_connections_have_one_bound(luxi: Socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_HELD_BYTES", MIB)
    held: list[int] = []
    add = frames.HeldBytes.add

    def note(self: frames.HeldBytes, count: int) -> None:
        add(self, count)
        held.append(self._held)

    monkeypatch.setattr(frames.HeldBytes, "add", note)

    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[Answer, Answer]:
        writers = [await unfinished(luxi.path, MIB) for _ in range(5)]
        writer.write(message("QueryConfigValues", ["cluster_name"]))
        answered = await answer(reader)
        # One that there is no room for is refused at its end.
        late, last = await asyncio.open_unix_connection(luxi.path)
        last.write(b"x" * 2 * MIB + b"\3")
        refused = await answer(late)
        for each in [*writers, last]:
            each.close()
        return answered, refused

    answered, refused = luxi.talk(scenario)
    assert answered["result"] == ["fleetlight"]
    assert refused["result"] == "Failed to parse request: there is no room for it now; try again later"
    assert max(held) <= MIB
    assert held[-1] == 0


def test_long_messages_are_read_in_turn(luxi: Socket, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    further_piece = frames.FrameReader._further_piece

    async def note(self: frames.FrameReader, held: frames.HeldByOne) -> bytes:
        piece = await further_piece(self, held)
        read.append(beats)
        return piece

    beats = 0
    monkeypatch.setattr(frames.FrameReader, "_further_piece", note)

    async def scenario(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        nonlocal beats
        connections = [await asyncio.open_unix_connection(luxi.path) for _ in range(8)]
        for _, writer in connections:
            writer.write(b"x" * MIB + b"\3")
        answers = asyncio.gather(*(answer(reader) for reader, _ in connections))
        while not answers.done():
            beats += 1
            await asyncio.sleep(0)
        for _, writer in connections:
            writer.close()

    luxi.talk(scenario)
    assert len(read) >= 8 * MIB // frames.PIECE_BYTES
    assert max(read.count(beat) for beat in read) <= 2


def test_message_that_does_not_end_in_time_is_dropped(luxi: Socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MESSAGE_S", 0.2)

    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[bytes, Answer]:
        late, began = await asyncio.open_unix_connection(luxi.path)
        began.write(message("QueryConfigValues", ["cluster_name"])[:20])
        rest = await late.read()
        began.close()
        # One that has not begun yet has time.
        writer.write(message("QueryConfigValues", ["cluster_name"]))
        return rest, await answer(reader)

    rest, answered = luxi.talk(scenario)
    assert rest == b""
    assert answered["result"] == ["fleetlight"]


def test_byte_that_ends_a_message_is_escaped_inside_of_one(own_fleet: ComputeFleet, own_luxi: Socket) -> None:
    own_fleet.create("north", display_name="with \3 inside")
    own_fleet.index("north")
    assert ["with \3 inside"] in own_luxi.result("QueryInstances", [], ["name"], False)


def test_caller_that_leaves_in_the_middle_disturbs_nobody(luxi: Socket) -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer:
        _, leaving = await asyncio.open_unix_connection(luxi.path)
        leaving.write(message("Query", "instance", ["name"], None)[:20])
        leaving.close()
        await leaving.wait_closed()
        writer.write(message("QueryConfigValues", ["cluster_name"]))
        return await answer(reader)

    assert luxi.talk(scenario)["result"] == ["fleetlight"]


def test_answer_that_lacks_a_cell_says_so_and_denies_nothing(fleet: ComputeFleet, tmp_path_factory: Any) -> None:
    broken = fleet.api(search=searching(enabled=False), pool=BrokenCells(fleet, failing_after={"east": 0}))
    luxi = Socket(broken, tmp_path_factory.mktemp("s") / "s")
    lists: Sequence[tuple[Any, ...]] = (
        ("Query", "node", ["name"], None),
        ("QueryNodes", [], ["name"], False),
        ("QueryJobs", [7], ["id"]),
        ("QueryTags", "node", "north-host0"),
    )
    for call in lists:
        said = luxi.ask(*call)
        assert (said["success"], said["complete"]) == (True, False)
    lookups: Sequence[tuple[Any, ...]] = (
        ("Query", "node", ["name"], ["==", "name", "east-host0"]),
        ("QueryTags", "node", "east-host0"),
    )
    for call in lookups:
        kind, [text, code] = luxi.ask(*call)["result"]
        assert (kind, code) == ("OpPrereqError", "environment_error")
        assert text == "Node name east-host0 not found, and part of the fleet does not answer"
    kind, [text] = luxi.ask("WaitForJobChange", 7, ["id"], None, None, 1)["result"]
    assert (kind, text) == ("GenericError", "Job 7 is not found, and part of the fleet does not answer")


class PlayedCalls:
    """Calls that all return the parts that a test gives. Counts the bytes that it has made."""

    def __init__(self, parts: Iterable[bytes | Exception]) -> None:
        self._parts = parts
        self.made = 0
        self.ended = asyncio.Event()

    async def answer(self, _method: str, _arguments: Any, _parts: int) -> Result:
        return Result(self._made())

    async def _made(self) -> AsyncIterator[bytes]:
        try:
            for part in self._parts:
                if isinstance(part, Exception):
                    raise part
                self.made += len(part)
                yield part
        finally:
            self.ended.set()


def talk_to(calls: PlayedCalls, path: Path, scenario: Callable[[socket.socket], Awaitable[Any]]) -> Any:
    typed: Any = calls

    async def run() -> Any:
        async with serving_luxi(path, typed):
            with socket.socket(socket.AF_UNIX) as client:
                client.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(client, str(path))
                await loop.sock_sendall(client, message("Query"))
                return await asyncio.wait_for(scenario(client), 60)

    return asyncio.run(run())


async def received(client: socket.socket) -> AsyncIterator[bytes]:
    while part := await asyncio.get_running_loop().sock_recv(client, 2**16):
        yield part
        if part.endswith(b"\3"):
            return


MIB = 2**20


def test_answer_is_made_while_it_is_read(tmp_path: Path) -> None:
    calls = PlayedCalls([b'"', *[b"x" * MIB] * 30, b'"'])

    async def scenario(client: socket.socket) -> int:
        size = furthest = 0
        async for part in received(client):
            size += len(part)
            furthest = max(furthest, calls.made - size)
        assert size == 30 * MIB + len('{"success":true,"result":""}') + 1
        return furthest

    assert talk_to(calls, tmp_path / "s", scenario) < 3 * MIB


def test_answer_that_fails_while_it_is_sent_has_no_end(tmp_path: Path) -> None:
    async def scenario(client: socket.socket) -> bytes:
        return b"".join([part async for part in received(client)])

    calls = PlayedCalls([b"[1", RuntimeError("the fleet went away")])
    assert talk_to(calls, tmp_path / "s", scenario) == b'{"success":true,"result":[1'


def test_client_that_does_not_read_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_S", 0.2)
    calls = PlayedCalls([b"x" * MIB] * 30)

    async def scenario(client: socket.socket) -> int:
        await calls.ended.wait()
        with suppress(ConnectionResetError):
            return sum([len(part) async for part in received(client)])
        return 0

    assert talk_to(calls, tmp_path / "s", scenario) < 30 * MIB


def test_socket_is_for_user_and_group_and_goes_with_the_server(luxi: Socket) -> None:
    async def scenario(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> int:
        return stat.S_IMODE(luxi.path.stat().st_mode)

    assert luxi.talk(scenario) == 0o660
    assert not luxi.path.exists()


def test_socket_that_was_left_behind_is_replaced_and_one_in_use_is_not(fleet: ComputeFleet, luxi: Socket) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(luxi.path))
    assert luxi.result("QueryConfigValues", ["cluster_name"]) == ["fleetlight"]

    async def second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Answer:
        with pytest.raises(LuxiSocketError, match="another process serves"):
            async with serving_luxi(luxi.path, luxi.calls):
                pass
        writer.write(message("QueryConfigValues", ["cluster_name"]))
        return await answer(reader)

    assert luxi.talk(second)["success"]
    with pytest.raises(LuxiSocketError, match="too long"):
        Socket(fleet.api(), Path("/tmp") / ("x" * 120)).result("QueryClusterInfo")  # noqa: S108  # it is never made
