"""One file, the environment, and errors that say what would be right."""

import sys
from pathlib import Path

import pytest

from fleetlight.cli.data_folder import DataFolder
from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.settings import load_embedded_settings, load_settings, with_api_options
from scripts.servers.certificates import CA_FILE, make_certificates

FLEET = '[fleet]\ndatabase_url = "postgresql://fleet:s3cret@db/fleet"\n'


def write_config(text: str, name: str = "fleetlight.toml") -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def error_of(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(write_config(text), None)
    return str(caught.value)


def test_file_in_the_working_directory_is_read() -> None:
    write_config(FLEET + "[search]\nstaleness_limit_s = 2.5\n")
    assert load_settings(None, None).search.staleness_limit_s == 2.5


def test_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLIGHT_SEARCH_STALENESS_LIMIT_S", "7")
    monkeypatch.setenv("FLEETLIGHT_INDEXER_BATCH_WAIT_S", "0.5")
    settings = load_settings(write_config(FLEET + "[search]\nstaleness_limit_s = 2.5\n"), None)
    assert settings.search.staleness_limit_s == 7
    assert settings.indexer.batch_wait_s == 0.5


def test_environment_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLIGHT_FLEET_DATABASE_URL", "sqlite:///fleet.db")
    assert load_settings(None, None).fleet.database_url.get_secret_value() == "sqlite:///fleet.db"


def test_traces_without_opentelemetry_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert not load_settings(write_config(FLEET + "[traces]\nenabled = false\n"), None).traces.enabled
    assert error_of(FLEET + "[traces]\nenabled = true\n") == (
        "configuration: traces.enabled (FLEETLIGHT_TRACES_ENABLED) is True: "
        "OpenTelemetry is not installed: pip install 'fleetlight[traces]'"
    )


def test_traces_by_another_protocol_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc': spans are sent by 'http/protobuf' alone" in error_of(
        FLEET + "[traces]\nenabled = true\n"
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    assert load_settings(write_config(FLEET + "[traces]\nenabled = true\n"), None).traces.enabled


def test_lists_in_the_environment_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLIGHT_INDEX_URLS", '["http://one:9200", "http://two:9200"]')
    assert load_settings(write_config(FLEET), None).index.urls == ("http://one:9200", "http://two:9200")


@pytest.mark.parametrize("url", ["one:9200", "http://one", "ftp://one:9200", "http://one:many", "http://:9200"])
def test_address_of_elasticsearch_that_is_none_is_refused_at_the_start(url: str) -> None:
    error = error_of(FLEET + f'[index]\nurls = ["{url}"]\n')
    assert "index.urls.0" in error
    assert "must be a URL with its port, as in http://127.0.0.1:9200" in error


@pytest.mark.parametrize(
    ("content", "problem"), [(b"", "is empty"), (b"\n", "is empty"), (b"s3cret\xff\n", "is not UTF-8 text")]
)
def test_file_that_holds_no_value_is_named_and_not_shown(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    error = error_of(FLEET + f'[index]\napi_key_file = "{path}"\n')
    assert error == f"index.api_key_file: {path} {problem}"


@pytest.mark.parametrize("section", ["bus", "index", "upstream"])
def test_file_without_certificates_is_refused_at_the_start(tmp_path: Path, section: str) -> None:
    path = tmp_path / "ca.crt"
    path.write_text("-----BEGIN CERTIFICATE-----\nno such thing\n-----END CERTIFICATE-----\n")
    error = error_of(FLEET + f'[{section}]\nca_certs = "{path}"\n')
    assert f"{section}.ca_certs" in error
    assert error.endswith("must be a file with certificates in PEM form")


def test_authority_for_an_address_without_tls_is_refused_at_the_start(tmp_path: Path) -> None:
    make_certificates("these tests", tmp_path)
    index = f'[index]\nbackend = "elasticsearch"\nca_certs = "{tmp_path}/{CA_FILE}"\n'
    error = error_of(FLEET + index + 'urls = ["https://one:9200", "http://two:9200"]\n')
    assert error == "configuration: index: ca_certs is for https:// URLs, and that of two:9200 is http://"
    assert load_settings(write_config(FLEET + index + 'urls = ["https://one:9200"]\n'), None).index.ca_certs


def test_secret_comes_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    monkeypatch.setenv("FLEETLIGHT_INDEX_PASSWORD_FILE", str(tmp_path / "password"))
    settings = load_settings(write_config(FLEET + '[index]\nusername = "api"\n'), None)
    assert settings.index.password is not None
    assert settings.index.password.get_secret_value() == "s3cret"
    assert "s3cret" not in repr(settings)


def test_fleet_database_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("sqlite:///elsewhere.db")
    settings = load_settings(write_config(f'[fleet]\ndatabase_url_file = "{tmp_path}/url"\n'), None)
    assert settings.fleet.database_url.get_secret_value() == "sqlite:///elsewhere.db"


@pytest.mark.parametrize("key", ["database_url", "database_url_file"])
def test_environment_wins_over_a_file_that_gives_the_same_value_in_the_other_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    (tmp_path / "url").write_text("sqlite:///in-a-file.db")
    ways = {"database_url": "sqlite:///as-a-value.db", "database_url_file": f"{tmp_path}/url"}
    other, value = next((name, value) for name, value in ways.items() if name != key)
    monkeypatch.setenv(f"FLEETLIGHT_FLEET_{key.upper()}", ways[key])
    config = write_config(f'[fleet]\n{other} = "{value}"\ncells_refresh_interval_s = 7\n')
    fleet = load_settings(config, None).fleet
    expected = "sqlite:///as-a-value.db" if key == "database_url" else "sqlite:///in-a-file.db"
    assert (fleet.database_url.get_secret_value(), fleet.cells_refresh_interval_s) == (expected, 7)


def test_value_in_a_file_wins_over_what_the_data_folder_says(tmp_path: Path) -> None:
    (tmp_path / "path").write_text("elsewhere.db")
    config = write_config(f'[index]\npath_file = "{tmp_path}/path"\n')
    assert load_embedded_settings(config, DataFolder(tmp_path)).index.path == Path("elsewhere.db")


def test_value_that_the_environment_gives_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLIGHT_INDEX_PASSWORD", "one")
    monkeypatch.setenv("FLEETLIGHT_INDEX_PASSWORD_FILE", str(tmp_path / "password"))
    assert "index.password and index.password_file are both given" in error_of(FLEET)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[serch]\nenabled = true\n", ["no section 'serch'", "did you mean 'search'?"]),
        ("search = true\n", ["'search' is a section", "[search]"]),
        (FLEET + "[search]\nenable = true\n", ["search.enable", "FLEETLIGHT_SEARCH_ENABLE", "did you mean 'enabled'?"]),
        (FLEET + '[search]\nenabled = "maybe"\n', ["search.enabled", "'maybe'", "boolean"]),
        (FLEET + "[search]\nstaleness_limit_s = 0\n", ["search.staleness_limit_s", "is 0", "greater than 0"]),
        (
            FLEET + '[index]\nbackend = "solr"\n',
            ["index.backend", "'solr'", "'sqlite', 'elasticsearch' or 'opensearch'"],
        ),
        (FLEET + "[api]\nport = 70000\n", ["api.port", "70000", "65535"]),
        ("[fleet]\ndatabase_url_file = 'none'\n", ["fleet.database_url_file", "cannot read none", "No such file"]),
        (FLEET + "database_url_file = 'x'\n", ["fleet.database_url", "both given"]),
        ("[fleet\n", ["is not TOML", "line 1"]),
    ],
)
def test_wrong_configuration_is_named_with_what_is_right(text: str, parts: list[str]) -> None:
    message = error_of(text)
    for part in parts:
        assert part in message


def test_every_wrong_key_is_named_at_once() -> None:
    message = error_of(FLEET + "[api]\nport = -1\n[relay]\nbatch_size = 0\n")
    assert "api.port" in message
    assert "relay.batch_size" in message


def test_wrong_key_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLIGHT_API_POTR", "1")
    with pytest.raises(ConfigurationError, match=r"api\.potr \(FLEETLIGHT_API_POTR\); did you mean 'port'\?"):
        load_settings(write_config(FLEET), None)


def test_section_in_the_environment_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLIGHT_SERCH_ENABLED", "1")
    monkeypatch.setenv("FLEETLIGHT_VERBOSE", "1")
    with pytest.raises(ConfigurationError) as caught:
        load_settings(write_config(FLEET), None)
    assert str(caught.value).splitlines() == [
        "configuration: there is no section 'serch' (FLEETLIGHT_SERCH_ENABLED); "
        "did you mean 'FLEETLIGHT_SEARCH_ENABLED'?",
        "configuration: there is no section 'verbose' (FLEETLIGHT_VERBOSE); "
        "known: api, bus, delivery, fleet, identity, index, indexer, keystone, log, monitoring, nodes, openid, relay, "
        "scheduler, search, traces, upstream",
    ]


def test_variables_that_are_no_settings_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLEETLIGHT_SAMPLES", "FLEETLIGHT_TEST_AMQP_URL", "FLEETLIGHT_RABBITMQ_PORT", "FLEETLIGHT_CONFIG"):
        monkeypatch.setenv(name, "something")
    assert load_settings(write_config(FLEET), None).log.level == "info"


@pytest.mark.parametrize(
    ("text", "environment"),
    [('[index]\nurls = "http://u:pw@one:9200"\n', {}), ("", {"FLEETLIGHT_INDEX_URLS": "http://u:pw@one:9200"})],
)
def test_a_list_is_asked_for_where_one_is_needed(
    monkeypatch: pytest.MonkeyPatch, text: str, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert error_of(FLEET + text) == (
        "configuration: index.urls (FLEETLIGHT_INDEX_URLS) is 'http://u:***@one:9200': "
        """must be a list, as in ["one", "two"]"""
    )


def test_errors_show_no_secret() -> None:
    message = error_of(FLEET + '[index]\nusername = "api"\npassword = 5\n')
    assert "index.password" in message
    assert "is 5" not in message

    message = error_of(FLEET + '[index]\npassword = "s3cret"\n')
    assert message == "configuration: index: username and password belong together: set both or neither"


@pytest.mark.parametrize(
    ("section", "text", "shown"),
    [
        ("api", 'watch_key = "tooshort"', "(not shown)"),
        ("upstream", "token = 5", "(not shown)"),
        ("identity", "token_lifetime_s = 0", "0"),
    ],
)
def test_what_is_secret_goes_by_its_type_not_by_its_name(section: str, text: str, shown: str) -> None:
    message = error_of(f"{FLEET}[{section}]\n{text}\n")
    assert f") is {shown}: " in message
    assert "tooshort" not in message


def test_missing_file_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read the configuration nowhere\.toml: No such file"):
        load_settings(Path("nowhere.toml"), None)


def test_without_any_fleet_the_ways_to_one_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="fleetlight up") as caught:
        load_settings(None, None)
    assert str(tmp_path / "fleetlight-data") in str(caught.value)


def test_data_folder_and_configured_fleet_exclude_each_other(tmp_path: Path) -> None:
    config = write_config(FLEET)
    with pytest.raises(ConfigurationError, match="two different fleets"):
        load_settings(config, tmp_path)
    with pytest.raises(ConfigurationError, match="keeps its fleet in the data folder"):
        load_embedded_settings(config, DataFolder(tmp_path))


def test_embedded_fleet_uses_the_index_unless_told_otherwise(tmp_path: Path) -> None:
    settings = load_embedded_settings(None, DataFolder(tmp_path))
    assert settings.search.enabled
    assert settings.index.path == tmp_path / "index.db"
    write_config("[search]\nenabled = false\n")
    assert not load_embedded_settings(None, DataFolder(tmp_path)).search.enabled


def test_options_win_over_the_section_api(tmp_path: Path) -> None:
    settings = load_embedded_settings(write_config("[api]\nport = 1\nmax_limit = 7\n"), DataFolder(tmp_path))
    changed = with_api_options(settings, "::1", 0, None).api
    assert (changed.host, changed.port, changed.auth, changed.max_limit) == ("::1", 0, "tokens", 7)
    with pytest.raises(ConfigurationError, match=r"--auth guess: Input should be 'none'"):
        with_api_options(settings, None, None, "guess")


def test_one_command_uses_an_index_again_that_was_made_anew(tmp_path: Path) -> None:
    """Without a restart, unless the file or the environment says another time."""
    assert load_embedded_settings(None, DataFolder(tmp_path)).search.retry_after_s == 5
    config = tmp_path / "fleetlight.toml"
    config.write_text("[search]\nretry_after_s = 60\n")
    assert load_embedded_settings(config, DataFolder(tmp_path)).search.retry_after_s == 60
