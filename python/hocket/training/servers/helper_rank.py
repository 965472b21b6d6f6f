"""`python -m hocket.training.servers.helper_rank`: a rank of `hocket run --helpers`. It owns parts of buckets, trains nothing."""

from __future__ import annotations

from hocket.errors import UsageError
from hocket.settings import Settings
from hocket.training.process import joined
from hocket.training.servers.helping import help_training


def main() -> None:
    """Help from joining the job until training has ended."""
    settings = Settings.from_environment()
    if not settings.helpers:
        raise UsageError("HOCKET_HELPERS says that no rank helps\nhint: hocket run --helpers N")
    process = joined(settings)
    help_training(process, process.everyone.world - settings.helpers)


if __name__ == "__main__":
    main()
