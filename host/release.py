"""The version of Holdfast that runs."""

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "holdfast-iot"


def release() -> str:
    """Returns the version as it is installed; `unknown` for a checkout that is not."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
