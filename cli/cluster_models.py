"""The clusters that commands of balance and capacity look at: from a text file of htools."""

from pathlib import Path

from cli.errors import CommandError, ConfigurationError
from operations.balancing.cluster import Cluster
from operations.balancing.cluster_file import read_cluster
from operations.balancing.cluster_file_writer import write_cluster
from operations.balancing.errors import ClusterFileError


def cluster_of_file(path: Path) -> Cluster:
    """Raises ConfigurationError for a file that is not there or not as htools has it."""
    try:
        return read_cluster(path.read_bytes().decode())
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: byte {error.start + 1} is no UTF-8") from error
    except ClusterFileError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    except OSError as error:
        raise ConfigurationError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def save_cluster(cluster: Cluster, path: Path) -> None:
    """Write a file of htools. Raises CommandError."""
    try:
        path.write_text(write_cluster(cluster))
    except OSError as error:
        raise CommandError(f"{path}: {(error.strerror or str(error)).lower()}") from error
