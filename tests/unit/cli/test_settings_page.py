"""The reference of the settings is what the program reads."""

import pytest
from pydantic import BaseModel

from tests.support.pages.settings_page import PAGE, meanings, models, page


@pytest.mark.parametrize(("section", "model"), list(models()))
def test_every_key_is_explained(section: str, model: type[BaseModel]) -> None:
    assert model.model_fields.keys() - meanings(model).keys() == set(), f"in the docstring of section {section}"


def test_page_of_the_settings_is_of_this_program() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "python -m tests.support.pages.settings_page"
