"""How many cases of a long or random suite run: a share in `make test`, or as many as a verb is given with `CASES=`."""

import os


def cases(share: int) -> int:
    """Return `share`, unless `HOCKET_FUZZ_CASES` says how many: verbs that are given `CASES=` set it."""
    return int(os.environ.get("HOCKET_FUZZ_CASES", share))
