"""Find a JDK for Elasticsearch and OpenSearch."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from scripts.servers.errors import NotInstalledError

OLDEST_JAVA = 21
_ADVICE = (
    f"Elasticsearch 9 and OpenSearch 3 need a JDK {OLDEST_JAVA} or newer: install one (such as the package"
    " openjdk-21-jdk-headless, or Temurin's) and, if it is not in /usr/lib/jvm, point ES_JAVA_HOME at it."
)


def java_home(server: str) -> Path:
    """ES_JAVA_HOME or JAVA_HOME if it is new enough, otherwise the newest installed one. Raises NotInstalledError."""
    for variable in ("ES_JAVA_HOME", "JAVA_HOME"):
        home = os.environ.get(variable)
        if home and (java_version(Path(home)) or 0) >= OLDEST_JAVA:
            return Path(home)
    version, newest = max(((java_version(home) or 0, home) for home in _installed()), default=(0, Path()))
    if version < OLDEST_JAVA:
        raise NotInstalledError(server, f"Java {OLDEST_JAVA}", _ADVICE)
    return newest


def java_version(home: Path) -> int | None:
    """Major version of the JDK in `home`, from its `release` file."""
    release = home / "release"
    if not (home / "bin" / "java").exists() or not release.exists():
        return None
    match = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(), re.MULTILINE)
    return int(match.group(1)) if match else None


def _installed() -> Iterator[Path]:
    yield from sorted(path.resolve() for path in Path("/usr/lib/jvm").glob("*") if path.is_dir())
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path).resolve().parents[1]
