"""`python -m hocket.torch.server_rank`: a rank of `hocket run --servers` that serves parameters and trains nothing itself."""

from __future__ import annotations

from hocket.errors import UsageError
from hocket.parameter_server.choice import ParameterServer
from hocket.settings import Settings
from hocket.torch.rendezvous import publish
from hocket.torch.shard import Shard
from hocket.training.process import joined
from hocket.training.servers.serve import serve


def main() -> None:
    """Serve from joining the job until the last worker leaves."""
    settings = Settings.from_environment()
    choice = ParameterServer.of(settings)
    if choice is None:
        raise UsageError("HOCKET_SERVERS says that no rank serves\nhint: hocket run --servers N")
    process = joined(settings, publish)
    serve(process, choice.workers(process.everyone.world), Shard)


if __name__ == "__main__":
    main()
