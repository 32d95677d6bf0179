"""A page is read out of an answer of Elasticsearch; the plain way to its items is to render each view."""

import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlight.indexer.backends.base import Document
from fleetlight.indexer.backends.elasticsearch.documents import to_bulks
from fleetlight.indexer.backends.elasticsearch.rows import row_decoder
from fleetlight.indexer.errors import IndexDocumentError, IndexRequestError
from fleetlight.views.compute.view import BriefTemplate, FullTemplate, ItemTemplate
from tests.support.fleets.documents import TEMPLATE, make_document
from tests.support.oracles.shown_items import stored_item

OLD_TEMPLATE = FullTemplate(1, is_admin=False, versioned_base="http://api/v2.1", plain_base="http://api")
BRIEF_TEMPLATE = BriefTemplate(1, versioned_base="http://api/v2.1", plain_base="http://api")

# What a caller may name a server, so as to look like the end of a document.
HOSTILE = [
    "\t",
    '"_source":{',
    '{"_index":',
    '}},"sort":[1]},{"_index":"i","_id":"x","_score":null,"_source":{\t',
    "\\t",
]
texts = st.text(max_size=20) | st.sampled_from(HOSTILE)
# Members of hints are any JSON.
hints = st.sampled_from([{}, {"_source": {"a": [1, {"_index": "i"}]}}, {"view": {"public": {"id": "x"}}}])
documents = st.builds(
    make_document,
    st.integers(0, 10_000),
    cell_uuid=st.sampled_from(["c0", 'c"1']),
    display_name=texts,
    metadata=st.dictionaries(texts, texts, max_size=2),
    scheduler_hints=hints,
)
templates = st.sampled_from([TEMPLATE, OLD_TEMPLATE, BRIEF_TEMPLATE])


def as_written(document: Document) -> bytes:
    [bulk] = to_bulks([document], {})
    source: bytes = bulk.body.splitlines()[1]
    return source


def with_another_tab(document: Document) -> bytes:
    """As somebody else may write it."""
    return as_written(document).replace(b"{", b"{\t", 1)


def with_another_tab_at_the_end(document: Document) -> bytes:
    return as_written(document)[:-1] + b"\t}"


writers = st.sampled_from([as_written, with_another_tab, with_another_tab_at_the_end])


def answer_of(sources: Sequence[bytes]) -> bytes:
    """An answer as Elasticsearch writes it, sorted by a text too."""
    hits = [
        b'{"_index":"instances-v4","_id":"%d","_score":null,"_source":%b,"sort":[%b,-3]}'
        % (number, source, json.dumps(HOSTILE[number % len(HOSTILE)]).encode())
        for number, source in enumerate(sources)
    ]
    return b'{"took":3,"timed_out":false,"_shards":{"failed":0},"hits":{"max_score":null,"hits":[%b]}}' % b",".join(
        hits
    )


@given(rows=st.lists(st.tuples(documents, writers), max_size=6), template=templates)
def test_page_has_the_item_of_each_document_however_it_was_written(
    rows: Sequence[tuple[Document, Callable[[Document], bytes]]], template: ItemTemplate
) -> None:
    answer = answer_of([write(document) for document, write in rows])
    page = row_decoder(("created_at", "uuid"), template.pieces).page(answer, template)
    items = [stored_item(template, document.view, document.cell_uuid) for document, _ in rows]
    assert page.items == b",".join(items)
    assert page.rows == len(rows)
    last = rows[-1][0].record if rows else None
    assert page.last == (None if last is None else (last["created_at"], last["uuid"]))


def test_answer_that_ends_early_is_refused_wherever_it_ends() -> None:
    answer = answer_of([as_written(make_document(number)) for number in range(2)])
    decoder = row_decoder(("created_at", "uuid"), TEMPLATE.pieces)
    for length in range(len(answer)):
        with pytest.raises(IndexRequestError):
            decoder.page(answer[:length], TEMPLATE)


@pytest.mark.parametrize("template", [TEMPLATE, OLD_TEMPLATE, BRIEF_TEMPLATE])
def test_nothing_is_cut_out_of_a_view_that_was_written_anew(template: ItemTemplate) -> None:
    """As a pipeline of the server does, with the same members in another order."""
    source = json.loads(as_written(make_document(1)))
    source["view"]["public"] = dict(reversed(source["view"]["public"].items()))
    answer = answer_of([json.dumps(source, separators=(",", ":"), ensure_ascii=False).encode()])
    with pytest.raises(IndexDocumentError, match="not as it was written"):
        row_decoder(("uuid",), template.pieces).page(answer, template)
    with pytest.raises(IndexDocumentError, match="not as it was written"):
        row_decoder(("uuid",), template.pieces).rows(answer, template)


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_page_names_the_document_that_cannot_be_shown(damaged: int) -> None:
    sources = [as_written(make_document(number)) for number in range(3)]
    sources[damaged] = sources[damaged].replace(b'","name":', b'","called":')
    answer = answer_of(sources)
    decoder = row_decoder(("uuid",), TEMPLATE.pieces)
    with pytest.raises(IndexDocumentError) as raised:
        decoder.page(answer, TEMPLATE)
    assert raised.value.document_id in (str(damaged), make_document(damaged).id)
