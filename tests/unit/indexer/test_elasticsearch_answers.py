"""Whatever answers instead of Elasticsearch is an index that failed, never an error that nobody expects."""

import json
from contextlib import closing
from typing import Any, Literal, NamedTuple

import pytest
from elastic_transport import ApiResponseMeta, HttpHeaders, NodeConfig, Urllib3HttpNode
from msgspec.structs import replace

from fleetlight.indexer.backends.elasticsearch.client import open_client, send
from fleetlight.indexer.backends.elasticsearch.documents import (
    DOCUMENT_MAX_BYTES,
    Bulk,
    from_found,
    from_progress_hits,
    to_bulks,
    to_outcome,
)
from fleetlight.indexer.backends.elasticsearch.rows import row_decoder
from fleetlight.indexer.backends.elasticsearch.writer import ElasticsearchWriter
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import (
    IndexAbsentError,
    IndexForbiddenError,
    IndexLoginError,
    IndexPausedError,
    IndexQueryError,
    IndexRequestError,
    IndexUnavailableError,
)
from fleetlight.indexer.extra_fields import Extra
from tests.support.fleets.documents import TEMPLATE, make_document

Backend = Literal["elasticsearch", "opensearch"]

_NOT_UTF_8 = b'{"hits":{"hits":[{"_id":"\xff","_source":{}}]},"docs":[{"_id":"\xff"}]}'


class _Raw(NamedTuple):
    """What a node answers."""

    meta: ApiResponseMeta
    body: bytes


def sent(
    status: int,
    body: bytes,
    *,
    backend: Backend = "elasticsearch",
    product: str | None = "Elasticsearch",
    is_query: bool = False,
) -> bytes:
    """What a request gets from a server that answers so."""
    kind = "text/html" if body.startswith(b"<") else "application/json"
    headers = HttpHeaders({"content-type": kind} | ({} if product is None else {"x-elastic-product": product}))
    meta = ApiResponseMeta(status, "1.1", headers, 0.0, NodeConfig("http", "index.test", 9200))
    settings = IndexSettings(backend=backend, urls=("http://index.test:9200",))
    with pytest.MonkeyPatch.context() as patch, closing(open_client(settings, timeout_s=1)) as client:
        patch.setattr(Urllib3HttpNode, "perform_request", lambda *_, **__: _Raw(meta, body))
        return send(client, "POST", "/index/_search", is_query=is_query)


@pytest.mark.parametrize(("backend", "product"), [("elasticsearch", "Elasticsearch"), ("opensearch", None)])
def test_answer_is_taken_from_the_server_that_the_settings_name(backend: Backend, product: str | None) -> None:
    assert sent(200, b"{}", backend=backend, product=product) == b"{}"


@pytest.mark.parametrize(
    ("backend", "product", "says"),
    [
        ("elasticsearch", None, "is not Elasticsearch, as index.backend says; for OpenSearch set it to opensearch"),
        (
            "opensearch",
            "Elasticsearch",
            "is not OpenSearch, as index.backend says; for Elasticsearch set it to elastic",
        ),
    ],
)
def test_answer_of_the_other_server_is_refused_with_the_setting_to_change(
    backend: Backend, product: str | None, says: str
) -> None:
    with pytest.raises(IndexRequestError, match=f"http://index.test:9200 {says}"):
        sent(200, b"{}", backend=backend, product=product)


def test_page_of_a_proxy_is_an_index_that_is_away() -> None:
    with pytest.raises(IndexUnavailableError, match="not JSON: '<html>'"):
        sent(200, b"<html>")


_SHARDLESS = b'{"error":{"root_cause":[],"type":"search_phase_execution_exception","reason":"all shards failed"}}'


@pytest.mark.parametrize(
    ("status", "body"), [(404, b'{"error":{"type":"index_not_found_exception"}}'), (503, _SHARDLESS)]
)
def test_index_that_is_only_being_made_is_told_from_one_that_failed(status: int, body: bytes) -> None:
    with pytest.raises(IndexAbsentError):
        sent(status, body)


def test_refusal_that_cannot_be_read_is_still_a_refusal() -> None:
    with pytest.raises(IndexRequestError, match="status 403"):
        sent(403, b'{"error":{"type":"\xff"}}')


def test_key_that_is_not_known_yet_is_waited_for_and_a_right_that_is_missing_is_not() -> None:
    """An Elasticsearch that has just started cannot read its keys, and calls a right one wrong."""
    body = b'{"error":{"type":"security_exception","reason":"unable to authenticate"}}'
    with pytest.raises(IndexLoginError, match=r"status 401, .*index\.api_key") as unknown:
        sent(401, body)
    assert isinstance(unknown.value, IndexUnavailableError)
    with pytest.raises(IndexForbiddenError, match=r"status 403, .*index\.api_key") as forbidden:
        sent(403, body)
    assert isinstance(forbidden.value, IndexRequestError)


def decode_rows(answer: bytes) -> object:
    return row_decoder(("created_at",), TEMPLATE.pieces).rows(answer, TEMPLATE)


def decode_page(answer: bytes) -> object:
    return row_decoder(("created_at",), TEMPLATE.pieces).page(answer, TEMPLATE)


@pytest.mark.parametrize("decode", [decode_rows, decode_page, from_progress_hits])
@pytest.mark.parametrize("answer", [b"", b"{", b"[]", b"<html>", _NOT_UTF_8])
def test_answer_that_cannot_be_read_is_an_index_that_failed(decode: Any, answer: bytes) -> None:
    with pytest.raises(IndexRequestError, match="another answer"):
        decode(answer)


def test_documents_that_cannot_be_read_are_an_index_that_failed() -> None:
    with pytest.raises(IndexRequestError, match="another answer"):
        list(from_found(b'{"docs":[{"_source":{"cell_uuid":"\xff","view":{}}}]}'))


def written(*statuses: int) -> bytes:
    items = [{"index": {"status": status, "error": {"type": "some_exception"}}} for status in statuses]
    return json.dumps({"items": items}).encode()


def bulk(count: int) -> Bulk:
    [made] = to_bulks([make_document(number) for number in range(count)], {})
    return made


def test_documents_that_the_server_is_too_busy_for_are_told_from_the_others() -> None:
    sent_bulk = bulk(5)
    outcome = to_outcome(sent_bulk, written(201, 429, 409, 400, 503))
    assert (outcome.applied, outcome.stale) == (1, 1)
    assert outcome.rejected.keys() == {3}
    assert outcome.unwritten == [1, 4]
    assert isinstance(outcome.failure, IndexUnavailableError)


def test_document_that_no_server_would_take_is_not_sent() -> None:
    huge = replace(make_document(1), extra=Extra("ns/Payload-1.9", {"blob": "x" * DOCUMENT_MAX_BYTES}, {}))
    rejected: dict[int, str] = {}
    [sent_bulk] = to_bulks([make_document(0), huge, make_document(2)], rejected)
    assert sent_bulk.numbers == [0, 2]
    assert f"more than {DOCUMENT_MAX_BYTES}" in rejected[1]


def test_document_that_is_too_large_by_itself_is_rejected_and_no_reason_to_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_arguments: object, **_options: object) -> bytes:
        return sent(413, b"")

    monkeypatch.setattr("fleetlight.indexer.backends.elasticsearch.writer.send", refuse)
    monkeypatch.setattr(ElasticsearchWriter, "_save_account", lambda *_: None)
    with closing(ElasticsearchWriter(IndexSettings(backend="elasticsearch"))) as writer:
        [rejection] = writer.write([make_document(1)]).rejected
        assert "status 413" in rejection.reason
        with pytest.raises(IndexRequestError, match="status 413"):
            writer.write([make_document(1), make_document(2)])


def test_refusal_of_a_document_outweighs_what_would_pass() -> None:
    outcome = to_outcome(bulk(3), written(429, 403, 429))
    assert isinstance(outcome.failure, IndexRequestError)


@pytest.mark.parametrize(
    ("block", "is_paused"),
    [
        ("FORBIDDEN/8/index write (api)", True),
        ("TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage", False),
    ],
)
def test_pause_is_told_from_a_full_disk(block: str, is_paused: bool) -> None:
    cause = {"type": "cluster_block_exception", "reason": f"index [i] blocked by: [{block}];"}
    answer = json.dumps({"items": [{"index": {"status": 403, "error": cause}}]}).encode()
    assert isinstance(to_outcome(bulk(1), answer).failure, IndexPausedError) == is_paused
    with pytest.raises(IndexUnavailableError) as caught:
        sent(403, json.dumps({"error": cause}).encode())
    assert isinstance(caught.value, IndexPausedError) == is_paused


def test_reason_of_a_refusal_is_shortened_to_what_tells_something() -> None:
    value = "v" * 100_000
    innermost = {"type": "number_format_exception", "reason": f"For input string: {value} of field vcpus"}
    cause = {"type": "document_parsing_exception", "reason": f"failed to parse '{value}'", "caused_by": innermost}
    answer = json.dumps({"items": [{"index": {"status": 400, "error": cause}}]}).encode()
    [reason] = to_outcome(bulk(1), answer).rejected.values()
    assert len(reason) < 1000
    for told in ("document_parsing_exception", "failed to parse", "number_format_exception", "of field vcpus"):
        assert told in reason


def of_shards(kind: str, *causes: str, caused_by: bool) -> dict[str, Any]:
    """A search that has failed in its shards. caused_by: as well as in the shards, as OpenSearch says it."""
    innermost: dict[str, Any] | None = None
    for each in reversed((kind, *causes)):
        innermost = {"type": each, "reason": f"about {each}"} | ({"caused_by": innermost} if innermost else {})
    error = {"type": "search_phase_execution_exception", "reason": "all shards failed", "phase": "query"}
    shards = [{"shard": 0, "index": "index", "reason": innermost}]
    return {**error, "failed_shards": shards, **({"caused_by": innermost} if caused_by else {})}


def of_phase(kind: str) -> dict[str, Any]:
    """A search that has failed after its shards were done."""
    return of_shards(kind, caused_by=True) | {"reason": "", "phase": "fetch", "failed_shards": []}


# What Elasticsearch 9.4 and OpenSearch 3.9 have answered, by what it was about.
OF_ONE_QUERY = {
    "search.allow_expensive_queries": (400, of_shards("query_shard_exception", "exception", caused_by=True)),
    "index.max_result_window": (400, of_shards("illegal_argument_exception", caused_by=False)),
    "index.max_result_window, OpenSearch": (400, of_shards("illegal_argument_exception", caused_by=True)),
    "index.max_terms_count, max_regex_length": (
        400,
        of_shards("query_shard_exception", "illegal_argument_exception", caused_by=False),
    ),
    "clauses": (400, of_shards("query_shard_exception", "too_many_nested_clauses", caused_by=False)),
    "clauses, OpenSearch": (400, of_shards("query_shard_exception", "too_many_clauses", caused_by=True)),
    "automaton": (400, of_shards("query_shard_exception", "too_complex_to_determinize_exception", caused_by=False)),
    "indices.query.bool.max_nested_depth": (400, {"type": "x_content_parse_exception"}),
    "term": (400, {"type": "illegal_argument_exception", "reason": "Term is longer than maximum indexable length"}),
    "search.max_buckets": (400, of_shards("too_many_buckets_exception", caused_by=False)),
    "search.max_buckets, fetch": (400, of_phase("too_many_buckets_exception")),
    "search.max_buckets, OpenSearch": (503, of_shards("too_many_buckets_exception", caused_by=True)),
    "search.max_buckets, fetch, OpenSearch": (503, of_phase("too_many_buckets_exception")),
    "indices.breaker.request": (429, of_shards("circuit_breaking_exception", caused_by=False)),
    "indices.breaker.fielddata, OpenSearch": (
        500,
        of_shards("exception", "execution_exception", "circuit_breaking_exception", caused_by=True),
    ),
    "search.default_search_timeout": (429, of_shards("search_timeout_exception", caused_by=False)),
    "search.default_search_timeout, OpenSearch": (500, of_shards("time_exceeded_exception", caused_by=True)),
    "http.max_content_length": (413, {"type": "content_too_long_exception"}),
}
OF_THE_INDEX = {
    "heap": (429, {"type": "circuit_breaking_exception", "reason": "[parent] Data too large for [<http_request>]"}),
    "queue of searches": (429, of_shards("es_rejected_execution_exception", caused_by=False)),
    "shards": (503, of_shards("no_shard_available_action_exception", caused_by=False)),
    "no shard": (503, {"type": "search_phase_execution_exception", "reason": "all shards failed"}),
    "closed": (400, {"type": "index_closed_exception", "reason": "closed"}),
    "read block": (403, {"type": "cluster_block_exception", "reason": "blocked by: [FORBIDDEN/7/index read (api)];"}),
    "missing": (404, {"type": "index_not_found_exception"}),
    "key": (401, {"type": "security_exception"}),
    "right": (403, {"type": "security_exception"}),
    "a proxy": (400, None),
}


@pytest.mark.parametrize("about", OF_ONE_QUERY)
def test_refusal_of_one_query_is_that_query_s_own(about: str) -> None:
    status, error = OF_ONE_QUERY[about]
    body = json.dumps({"error": error, "status": status}).encode()
    with pytest.raises(IndexQueryError, match=f"the index refuses this query: .*status {status}"):
        sent(status, body, is_query=True)
    with pytest.raises((IndexRequestError, IndexUnavailableError)) as of_another:
        sent(status, body)
    assert not isinstance(of_another.value, IndexQueryError)


@pytest.mark.parametrize("about", OF_THE_INDEX)
def test_refusal_of_any_query_is_an_index_that_failed(about: str) -> None:
    status, error = OF_THE_INDEX[about]
    body = json.dumps({"error": error, "status": status} if error else "Bad Request").encode()
    with pytest.raises((IndexRequestError, IndexUnavailableError)) as refused:
        sent(status, body, is_query=True)
    assert not isinstance(refused.value, IndexQueryError)
