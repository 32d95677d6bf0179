import pytest

from tests.support.waiting import wait_until


def test_value_of_the_condition_is_returned_once_it_holds() -> None:
    answers = iter([0, None, "", "here"])
    assert wait_until(lambda: next(answers), timeout_s=5) == "here"


def test_failed_assertion_means_not_yet() -> None:
    calls = []

    def third_call() -> bool:
        calls.append(1)
        assert len(calls) >= 3
        return True

    assert wait_until(third_call, timeout_s=5)


def test_condition_that_never_holds_fails_with_its_name_and_last_assertion() -> None:
    def rows_arrive() -> bool:
        assert [] == [1], "no rows"
        return True

    with pytest.raises(AssertionError, match="rows_arrive did not hold within 0") as caught:
        wait_until(rows_arrive, timeout_s=0)
    assert isinstance(caught.value.__cause__, AssertionError)
