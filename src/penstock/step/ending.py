"""Whether anything is yet to come out of the streams: of those that people declare, and of those that are derived from results.

Pure functions of the network and the manifest; the ticks that let it come are `step`'s.
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
    """The progress of a stream of which nothing more comes."""
    return Progress(FOREVER, newest_time(manifest, stream), ENDED)


def is_ending(manifest: Manifest) -> bool:
    """Whether the streams have ended, and not everything has come out of it yet."""
    return not manifest.final and any(p.kind == ENDED for p in manifest.progress.values())


def most_ticks(network: Network) -> int:
    """How many ticks the derived streams need at most: of each level rows come, windows close, progress is told."""
    count = len(network.derived_streams)
    return 3 * count + 2 if count else 0


def is_settled(network: Network, manifest: Manifest, views: derived.Views) -> bool:
    """Whether only new rows bring anything: derived streams have taken in all results, and what this closes is closed."""
    known = manifest.progress
    after = {**known, **derived.moved(network, manifest, known)}
    ahead = manifest.reached() | {name: p.value for name, p in after.items()}
    owing = held_back(network, manifest, ahead, after)
    return after == known and not owing and not derived.waiting(network, manifest, views)


def is_out(network: Network, manifest: Manifest, views: derived.Views) -> bool:
    """Whether no derived stream has anything yet to come."""
    reached = manifest.reached()
    over = all(reached.get(d.name, NEVER) >= FOREVER for d in network.derived_streams)
    return over and not (
        derived.waiting(network, manifest, views) or held_back(network, manifest, reached, manifest.progress)
    )
