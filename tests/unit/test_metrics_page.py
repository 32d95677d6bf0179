"""The reference of the metrics is what the program counts."""

from tests.support.pages.metrics_page import PAGE, page


def test_page_of_the_metrics_is_of_this_program() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "python -m tests.support.pages.metrics_page"
