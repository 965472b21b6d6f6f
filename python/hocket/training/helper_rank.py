"""`python -m hocket.training.helper_rank`: a rank of `hocket run --helpers` that owns parts of buckets and trains nothing."""

from __future__ import annotations

from hocket.errors import UsageError
from hocket.settings import Settings
from hocket.training.helping import help_training
from hocket.training.process import joined


def main() -> None:
    """Help from joining the job until training has ended."""
    settings = Settings.from_environment()
    if not settings.helpers:
        raise UsageError("HOCKET_HELPERS says that no rank helps\nhint: hocket run --helpers N")
    process = joined(settings)
    help_training(process, process.everyone.world - settings.helpers)


if __name__ == "__main__":
    main()
