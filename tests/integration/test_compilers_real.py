"""The compilers against a real PostgreSQL and a real Elasticsearch: the rows and the order of plain Python."""

import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest
from elasticsearch import BadRequestError, Elasticsearch
from elasticsearch.helpers import bulk
from hypothesis import HealthCheck, Phase, assume, given, reject, settings
from hypothesis import strategies as st
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.schema import CreateSchema, DropSchema

from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.filters import Eq, Gt, In, Ne, NotIn, check
from fleetlight.query.page import PageRequest
from fleetlight.query.regex import LUCENE_OPTIONS, compile_pattern, to_lucene, to_postgres
from fleetlight.query.sort import SortOrder, nice_key
from fleetlight.query.to_dsl import NICE_KEYS, UUID_PARTS, search_after, sort, to_dsl, uuid_parts
from fleetlight.query.to_sql import after, can_express, order_by, to_sql
from tests.property.query_strategies import ADDRESSES, FIELDS, NUMBERS, STATES, TAGS, TEXTS, TIMES, requests
from tests.support.examples import examples
from tests.support.oracles.filter_oracle import expected_page
from tests.support.oracles.list_route_checks import is_beyond_the_index
from tests.support.servers.index_server import index_client

pytestmark = pytest.mark.no_rerun

# One set, written once: every value of every field, nulls, ties.
RECORDS: list[dict[str, Any]] = [
    {
        "uuid": str(UUID(int=n * 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C834 % 2**128)),
        "name": ([*TEXTS, "x" * 300, None])[n % (len(TEXTS) + 2)],
        "state": ([*STATES, None])[n % 4],
        "size": ([*NUMBERS, None])[n // 2 % (len(NUMBERS) + 1)],
        "load": (-1.5, 0.0, 0.1, 2.0, 1e300, None)[n // 3 % 6],
        "created_at": ([*TIMES, None])[n // 5 % (len(TIMES) + 1)],
        "locked": (False, True, None)[n // 7 % 3],
        "addresses": ([*ADDRESSES, None])[n // 11 % (len(ADDRESSES) + 1)],
        "tags": [tag for bit, tag in enumerate(TAGS) if n * 37 >> bit & 1 and n % 3],
    }
    for n in range(120)
]
_HARD = settings(
    max_examples=examples(120),
    deadline=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=(HealthCheck.function_scoped_fixture, HealthCheck.too_slow),
)


def _things(schema: str) -> Table:
    return Table(
        "things",
        MetaData(schema=schema),
        Column("uuid", Text(collation="C"), primary_key=True),
        Column("name", Text),
        Column("state", Text),
        Column("size", BigInteger),
        Column("load", Double),
        Column("created_at", BigInteger),
        Column("locked", Boolean),
        Column("tags", JSONB, nullable=False),
        Column("addresses", JSONB(none_as_null=True)),
        Column("small", Integer, server_default="7"),
    )


@pytest.fixture(scope="module")
def postgresql(postgresql_url: str) -> Iterator[tuple[Connection, Table]]:
    things = _things(f"compilers_{uuid4().hex}")
    engine = create_engine(postgresql_url)
    assert things.schema is not None
    with engine.connect() as connection:
        connection.execute(CreateSchema(things.schema))
        things.create(connection)
        connection.execute(things.insert(), RECORDS)
        connection.commit()
        yield connection, things
        connection.rollback()
        connection.execute(DropSchema(things.schema, cascade=True))
        connection.commit()
    engine.dispose()


@pytest.fixture(scope="module")
def elasticsearch(elasticsearch_url: str) -> Iterator[tuple[Elasticsearch, str]]:
    index = f"fleetlight-test-{uuid4().hex}-compilers"
    kinds = {"text": "keyword", "number": "long", "timestamp": "long", "float": "double", "bool": "boolean"}
    properties: dict[str, dict[str, Any]] = {
        name: {"type": kinds.get(field.kind.value, "keyword")} for name, field in FIELDS.items()
    }
    properties |= {part: {"type": "long"} for part in UUID_PARTS}
    properties |= {key: {"type": "keyword"} for key in NICE_KEYS.values()}
    properties["addresses"] = {"type": "object", "enabled": False}
    with index_client(elasticsearch_url, request_timeout=30) as client:
        client.indices.create(
            index=index,
            mappings={"dynamic": "strict", "properties": properties},
            settings={"number_of_shards": 2, "number_of_replicas": 0},
        )
        actions = (
            {
                **record,
                **dict(zip(UUID_PARTS, uuid_parts(record["uuid"]), strict=True)),
                **{key: nice_key(record[name]) for name, key in NICE_KEYS.items() if record.get(name) is not None},
                "_id": record["uuid"],
            }
            for record in RECORDS
        )
        bulk(client, actions, index=index, refresh=True)
        yield client, index
        client.indices.delete(index=index)


def _oracle(request: PageRequest) -> list[str]:
    return [record["uuid"] for record in expected_page(RECORDS, request, FIELDS)]


def _postgresql_page(source: tuple[Connection, Table], request: PageRequest) -> list[str]:
    connection, things = source
    statement = select(things.c.uuid).where(to_sql(request.filter, things.c, FIELDS, "postgresql"))
    if request.after is not None:
        statement = statement.where(after(request.order, request.after, things.c, "postgresql"))
    statement = statement.order_by(*order_by(request.order, things.c, "postgresql")).limit(request.limit)
    return list(connection.execute(statement).scalars())


def _elasticsearch_page(source: tuple[Elasticsearch, str], request: PageRequest) -> list[str]:
    client, index = source
    position: Mapping[str, Any] = {}
    if request.after is not None:
        position = {"search_after": search_after(request.order, request.after, FIELDS)}
    answer = client.search(
        index=index,
        query={"bool": {"filter": [to_dsl(request.filter, FIELDS)]}},
        sort=sort(request.order),
        size=request.limit,
        source=False,
        **position,
    )
    return [hit["_id"] for hit in answer["hits"]["hits"]]


def _everything(node: Any) -> PageRequest:
    check(node, FIELDS)
    return PageRequest(node, SortOrder.of(FIELDS, ()), limit=1000)


@pytest.mark.night
@pytest.mark.postgresql
@_HARD
@given(request=requests(RECORDS))
def test_postgresql_finds_the_rows_of_the_oracle_in_its_order(
    postgresql: tuple[Connection, Table], request: PageRequest
) -> None:
    if can_express(request.filter, "postgresql"):
        assert _postgresql_page(postgresql, request) == _oracle(request)


@pytest.mark.elasticsearch
@_HARD
@given(request=requests(RECORDS))
def test_elasticsearch_finds_the_rows_of_the_oracle_in_its_order(
    elasticsearch: tuple[Elasticsearch, str], request: PageRequest
) -> None:
    try:
        page = _elasticsearch_page(elasticsearch, request)
    except NotExpressibleError:
        assert is_beyond_the_index(request)
    else:
        assert page == _oracle(request)


LONG_TEXT = "é" * 20_000  # longer than a term can be
MANY = tuple(f"no-{n}" for n in range(70_000))


@pytest.mark.night
@pytest.mark.elasticsearch
@pytest.mark.parametrize(
    "node",
    [
        Eq("name", LONG_TEXT),
        Ne("name", LONG_TEXT),
        In("name", (LONG_TEXT, "a")),
        NotIn("name", (LONG_TEXT, "a")),
        In("name", (*MANY, "a")),
        NotIn("name", (*MANY, "a")),
    ],
    ids=["eq", "ne", "in", "not_in", "in_many", "not_in_many"],
)
def test_elasticsearch_answers_beyond_its_limits_of_length_and_number(
    elasticsearch: tuple[Elasticsearch, str], node: Any
) -> None:
    assert _elasticsearch_page(elasticsearch, _everything(node)) == _oracle(_everything(node))


@pytest.mark.night
@pytest.mark.postgresql
@pytest.mark.parametrize("node", [In("name", (*MANY, "a\0", "a")), NotIn("name", (*MANY, "a"))], ids=["in", "not_in"])
def test_postgresql_takes_any_number_of_values(postgresql: tuple[Connection, Table], node: Any) -> None:
    assert _postgresql_page(postgresql, _everything(node)) == _oracle(_everything(node))


@pytest.mark.postgresql
def test_number_wider_than_its_column_is_compared_not_refused(postgresql: tuple[Connection, Table]) -> None:
    connection, things = postgresql
    columns = {"size": things.c.small}
    below = select(things.c.uuid).where(to_sql(Gt("size", -(2**40)), columns, FIELDS, "postgresql"))
    assert len(connection.execute(below).all()) == len(RECORDS)


# Patterns made of the subset, over few characters, so that they often match.
_CHARACTERS = "aB-\n.\\$é😀"
_escaped = {character: f"\\{character}" if character in string.punctuation else character for character in _CHARACTERS}
_atoms = st.one_of(
    st.sampled_from([*_escaped.values(), ".", r"\w", r"\d", r"\S", r"[^\W]"]),
    st.lists(st.sampled_from([*_escaped.values(), r"\w", "a-z", "A-Z", "ß-😀"]), min_size=1, max_size=3).map(
        lambda parts: f"[{''.join(parts)}]"
    ),
    st.lists(st.sampled_from(list(_escaped.values())), min_size=1, max_size=3).map(
        lambda parts: f"[^{''.join(parts)}]"
    ),
)
_quantifiers = st.sampled_from(["", "", "", "?", "+", "*", "{2}", "{1,2}", "{2,}", "{0}", "*?"])


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeated = st.builds(lambda atom, quantifier: f"({atom}){quantifier}", inner, _quantifiers)
    chosen = st.lists(inner, min_size=1, max_size=3).map(lambda branches: f"(?:{'|'.join(branches)})")
    return st.one_of(repeated, chosen, st.lists(inner, min_size=1, max_size=3).map("".join))


_bodies = st.recursive(
    st.builds(lambda atom, quantifier: atom + quantifier, _atoms, _quantifiers), _larger, max_leaves=5
)
patterns = st.lists(
    st.builds(
        lambda start, body, end: start + body + end,
        st.sampled_from(["", "", "^", "(^|a)"]),
        st.one_of(_bodies, st.just("")),
        st.sampled_from(["", "", "$", "(?:$|B)"]),
    ),
    min_size=1,
    max_size=2,
).map("|".join)
_texts = st.lists(st.text(st.sampled_from(_CHARACTERS), max_size=5), min_size=20, max_size=20, unique=True)


def _found(pattern: str, texts: Sequence[str]) -> list[str]:
    return [candidate for candidate in texts if compile_pattern(pattern).search(candidate)]


def _expressible(pattern: str, translate: Callable[[str], str]) -> str | None:
    try:
        return translate(pattern)
    except NotExpressibleError:
        return None


@pytest.mark.postgresql
@_HARD
@given(pattern=patterns, texts=_texts)
def test_postgresql_finds_what_the_pattern_finds(
    postgresql: tuple[Connection, Table], pattern: str, texts: list[str]
) -> None:
    expression = _expressible(pattern, to_postgres)
    assume(expression is not None)
    values = text("SELECT t FROM unnest(CAST(:texts AS text[])) WITH ORDINALITY AS u (t, n) WHERE t ~ :p ORDER BY n")
    assert list(postgresql[0].execute(values, {"texts": texts, "p": expression}).scalars()) == _found(pattern, texts)


REGEX_TEXTS = tuple(
    dict.fromkeys(
        first + second + third + last
        for first in ("", *_CHARACTERS)
        for second in ("", "a", "-", "😀")
        for third in ("", "B", "é", "\n")
        for last in ("", "a", "b1", "\\$")
    )
)


@pytest.fixture(scope="module")
def regex_index(elasticsearch_url: str) -> Iterator[tuple[Elasticsearch, str]]:
    index = f"fleetlight-test-{uuid4().hex}-regex"
    with index_client(elasticsearch_url, request_timeout=30) as client:
        client.indices.create(
            index=index,
            mappings={"properties": {"name": {"type": "keyword"}}},
            settings={"number_of_shards": 1, "number_of_replicas": 0},
        )
        actions = ({"name": name, "_id": str(number)} for number, name in enumerate(REGEX_TEXTS))
        bulk(client, actions, index=index, refresh=True)
        yield client, index
        client.indices.delete(index=index)


@pytest.mark.elasticsearch
@_HARD
@given(pattern=patterns)
@pytest.mark.dialect
def test_elasticsearch_finds_what_the_pattern_finds(regex_index: tuple[Elasticsearch, str], pattern: str) -> None:
    expression = _expressible(pattern, to_lucene)
    assume(expression is not None)
    client, index = regex_index
    query = {"regexp": {"name": {"value": expression, **LUCENE_OPTIONS}}}
    try:
        answer = client.search(index=index, query=query, size=len(REGEX_TEXTS), source=False)
    except BadRequestError as error:
        if "too_complex_to_determinize" not in str(error.body):
            raise
        reject()
    found = [REGEX_TEXTS[int(hit["_id"])] for hit in answer["hits"]["hits"]]
    assert sorted(found) == sorted(_found(pattern, REGEX_TEXTS))


@pytest.mark.elasticsearch
@pytest.mark.parametrize(
    "pattern",
    [
        ".*a.{9}$",
        "^.*[α-ω😀-😎].{9}$",
        "^[^😀]*(a|é)[^α]{8}",
        "(a|b)*a(a|b){9}$",
        "[^a-z]{100}",
        "a" * 60,
        "^.{100}$",
        "web-0123456789." * 17,
    ],
)
def test_elasticsearch_accepts_patterns_near_its_limits_that_are_sent(
    regex_index: tuple[Elasticsearch, str], pattern: str
) -> None:
    client, index = regex_index
    expression = _expressible(pattern, to_lucene)
    if expression is not None:
        client.search(index=index, query={"regexp": {"name": {"value": expression, **LUCENE_OPTIONS}}})
