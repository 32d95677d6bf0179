"""Addresses of Nova's databases, as Nova's own tools have written them down."""

import pytest

from fleetlight.cells.errors import DatabaseUrlError
from fleetlight.cells.kinds.nova_db.databases import open_nova_database, parse_nova_url
from fleetlight.cells.kinds.nova_db.deployment import NovaCell, filled_in, with_account_of
from fleetlight.cli.cells.nova_cells import addresses_of


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("mysql+pymysql://nova:p@db:3306/nova?charset=utf8", "mysql+pymysql://nova:p@db:3306/nova"),
        ("mysql://nova@db/nova", "mysql+pymysql://nova@db/nova"),
        ("mariadb+mariadbconnector://db/nova", "mysql+pymysql://db/nova"),
        ("postgresql+psycopg2://u:p@db/nova?sslmode=require", "postgresql+psycopg://u:p@db/nova?sslmode=require"),
        # A password that was never quoted, and one that was.
        ("mysql://nova:a@b/c@db/nova", "mysql+pymysql://nova:a%40b%2Fc@db/nova"),
        ("mysql://nova:a%40b@db/nova", "mysql+pymysql://nova:a%40b@db/nova"),
        # What a template without a port leaves behind.
        ("mysql://nova@db:/nova", "mysql+pymysql://nova@db/nova"),
        ("mysql://[::1]:3307/nova", "mysql+pymysql://[::1]:3307/nova"),
    ],
)
def test_address_gets_the_driver_that_is_here(url: str, expected: str) -> None:
    assert parse_nova_url(url).render_as_string(hide_password=False) == expected


@pytest.mark.parametrize("url", ["oracle://nova:secret@db/nova", "nova:secret@db", "mysql:secret", "sqlite://"])
def test_address_of_something_else_is_refused_without_its_secret(url: str) -> None:
    with pytest.raises(DatabaseUrlError) as error:
        open_nova_database(url)
    assert "secret" not in str(error.value)


def test_template_is_filled_in_from_the_main_database() -> None:
    main = "mysql+pymysql://nova:p%40ss@DB1:3306/nova?charset=utf8"
    template = "{scheme}://{username}:{password}@{hostname}:{port}/nova_cell2?{query}"
    assert filled_in(template, main) == "mysql+pymysql://nova:p%40ss@db1:3306/nova_cell2?charset=utf8"


def test_template_gets_nothing_for_a_port_that_is_missing() -> None:
    assert filled_in("mysql://{hostname}:{port}/nova", "mysql://db/nova") == "mysql://db:/nova"


@pytest.mark.parametrize("main", [None, "mysql://db/nova"])
def test_template_that_nothing_fills_is_refused(main: str | None) -> None:
    with pytest.raises(DatabaseUrlError, match="template"):
        filled_in("mysql://{hostname9}/nova", main)


def test_account_of_nova_itself_is_not_used() -> None:
    given = "mysql://reader@db/nova_api?read_default_file=/etc/fleetlight/nova.cnf"
    account = with_account_of("mysql+pymysql://nova:secret@db7/nova?charset=utf8", given)
    assert account == "mysql+pymysql://reader@db7/nova?read_default_file=%2Fetc%2Ffleetlight%2Fnova.cnf"
    assert with_account_of("mysql://nova:secret@db7/nova", "mysql://db/nova_api") == "mysql+pymysql://db7/nova"


def test_server_of_the_given_address_takes_the_place_of_one_that_is_a_proxy() -> None:
    given = "mysql://reader@db1:3307/nova_api"
    assert with_account_of("mysql://nova:x@proxy:3306/nova", given, at_its_server=True) == (
        "mysql+pymysql://reader@db1:3307/nova"
    )
    assert with_account_of("mysql://nova:x@proxy:3306/nova", "mysql://db1/nova_api", at_its_server=True) == (
        "mysql+pymysql://db1/nova"
    )


def test_two_cells_are_not_read_from_one_database() -> None:
    cells = [NovaCell(str(number), f"cell{number}", f"mysql://db{number}/nova") for number in (1, 2)]
    found = addresses_of(cells, "mysql://reader@db/nova_api", main_database_url=None, one_server=True)
    assert found["1"] == "mysql+pymysql://reader@db/nova"
    assert "its database would be that of cell1" in str(found["2"])
