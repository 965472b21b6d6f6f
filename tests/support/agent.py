"""torchrun, as a script that `warm` can run."""

from torch.distributed.run import main

main()
