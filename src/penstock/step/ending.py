"""Whether the streams still have something to deliver: declared streams, and those derived from results.

Pure functions of the network and the manifest; ticks of a `step` deliver it.
"""

from __future__ import annotations

from penstock.model.time import FOREVER, NEVER
from penstock.planner.network import Network
from penstock.state.manifest import Manifest, Progress
from penstock.step import derived
from penstock.step.compose import newest_time
from penstock.step.windows_due import held_back

ENDED = "final"  # kind of the progress of a stream that has ended


def ended(manifest: Manifest, stream: str) -> Progress:
    """The progress of a stream that has ended."""
    return Progress(FOREVER, newest_time(manifest, stream), ENDED)


def is_ending(manifest: Manifest) -> bool:
    """Whether the streams have ended, but not everything has been delivered yet."""
    return not manifest.final and any(p.kind == ENDED for p in manifest.progress.values())


def most_ticks(network: Network) -> int:
    """How many ticks the derived streams need at most: at each level rows come, windows close, progress advances."""
    count = len(network.derived_streams)
    return 3 * count + 2 if count else 0


def is_quiescent(network: Network, manifest: Manifest, views: derived.Views) -> bool:
    """Whether only new rows have an effect: derived streams have read all results, and what this closes is closed."""
    known = manifest.progress
    after = {**known, **derived.moved(network, manifest, known)}
    ahead = manifest.reached() | {name: p.value for name, p in after.items()}
    owing = held_back(network, manifest, ahead, after)
    return after == known and not owing and not derived.waiting(network, manifest, views)


def is_out(network: Network, manifest: Manifest, views: derived.Views) -> bool:
    """Whether no derived stream has anything left."""
    reached = manifest.reached()
    over = all(reached.get(d.name, NEVER) >= FOREVER for d in network.derived_streams)
    return over and not (
        derived.waiting(network, manifest, views) or held_back(network, manifest, reached, manifest.progress)
    )
