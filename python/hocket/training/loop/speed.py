"""Speed of a rank in samples per second: from the samples of its steps, and the time that they took it without waits for others."""

from __future__ import annotations

from hocket.job.live.progress import Progress

WARM_UP_STEPS = 2
STEPS = 8


class Speed:
    """Speed of this rank since `begin`. Steps are the script's, of one batch or several."""

    def __init__(self, progress: Progress) -> None:
        """Begin. `progress`: what the thread that trains notes of its steps."""
        self._progress = progress
        self.begin()

    def begin(self) -> None:
        """Begin anew, with steps that do not count."""
        self._steps, self._samples, self._got = -WARM_UP_STEPS, 0, 0
        self._since = self._progress.total

    def got(self, samples: int) -> None:
        """Note a batch of the step that is under way."""
        self._got += samples

    def stepped(self) -> None:
        """Note the end of a step."""
        self._steps += 1
        if self._steps > 0:
            self._samples += self._got
        elif self._steps == 0:
            self._since = self._progress.total
        self._got = 0

    @property
    def known(self) -> bool:
        """True if enough steps were made."""
        return self._steps >= STEPS

    @property
    def value(self) -> float:
        """Samples per second; 0: not known."""
        whole_ns, waited_ns = (
            now - then for now, then in zip(self._progress.total[:2], self._since, strict=False)
        )
        own_s = (whole_ns - waited_ns) * 1e-9
        return self._samples / own_s if own_s > 0 and self._progress.tells_waits else 0.0
