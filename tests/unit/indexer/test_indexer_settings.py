import pytest
from pydantic import ValidationError

from fleetlight.indexer.settings import IndexerSettings


def test_no_more_is_held_than_keeps_the_writes_going_unless_somebody_wants_it() -> None:
    settings = IndexerSettings()
    assert settings.prefetch == settings.batch_max_messages * (settings.writes_in_flight + 1)


def test_prefetch_that_starves_the_batches_is_refused_with_what_would_be_right() -> None:
    with pytest.raises(ValidationError, match=r"prefetch must be at least .* = 1500, not 600"):
        IndexerSettings(prefetch=600)


def test_bytes_are_to_be_held_for_as_many_batches_as_messages() -> None:
    settings = IndexerSettings()
    assert settings.prefetch_max_bytes >= settings.batch_max_bytes * (settings.writes_in_flight + 1)
    with pytest.raises(ValidationError, match=r"prefetch_max_bytes must be at least .* = 300000, not 299999"):
        IndexerSettings(batch_max_bytes=100_000, prefetch_max_bytes=299_999)


@pytest.mark.parametrize("name", ["batch_wait_s", "hole_timeout_s", "retry_wait_max_s", "writes_in_flight"])
def test_nothing_may_be_zero(name: str) -> None:
    with pytest.raises(ValidationError, match=name):
        IndexerSettings.model_validate({name: 0})
