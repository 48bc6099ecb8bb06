"""What all workers of this gateway count and know, for the console."""

from collections.abc import Iterable
from pathlib import Path

from gateway.admin import WITH_FIGURES, WITH_STREAMS, Status, ask_others
from gateway.console.figures import Figures, count_up
from gateway.metrics import Metrics
from gateway.streams import Streams

RECENT_STREAMS = 1000  # of each worker


class Overview:
    def __init__(
        self, metrics: Metrics, streams: Streams, worker: int, workers: int, run_dir: Path | None
    ) -> None:
        self._metrics = metrics
        self._streams = streams
        self._worker = worker
        self._workers = workers
        self._run_dir = run_dir

    def figures(self) -> Figures:
        return count_up(self._metrics.collect())

    def recent_streams(self) -> list[str]:
        return self._streams.recent(RECENT_STREAMS)

    async def all_figures(self) -> list[Figures]:
        told = await self._ask_others(WITH_FIGURES)
        return [self.figures(), *(status.figures for status in told if status.figures)]

    async def all_streams(self) -> list[str]:
        told = await self._ask_others(WITH_STREAMS)
        return [*self.recent_streams(), *(name for status in told for name in status.streams)]

    async def _ask_others(self, question: bytes) -> Iterable[Status]:
        """The other workers, as far as they answer in time."""
        if self._run_dir is None:
            return ()
        return (await ask_others(self._run_dir, self._workers, self._worker, question)).values()
