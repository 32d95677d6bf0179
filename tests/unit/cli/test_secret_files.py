from pathlib import Path

import pytest

from fleetlight.cli.errors import CommandError
from fleetlight.cli.secret_files import kept_or_new


def test_secret_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "key"
    assert kept_or_new(path, lambda: "sesame") == ("sesame", True)
    assert kept_or_new(path, lambda: "another") == ("sesame", False)
    assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_file_that_holds_no_secret_is_not_kept_as_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(CommandError, match="remove it to get a new one"):
        kept_or_new(path, lambda: "sesame")
    assert path.read_bytes() == content
