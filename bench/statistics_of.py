# SPDX-License-Identifier: Apache-2.0
"""Medians, ratios of medians with bootstrap intervals, geometric means."""
import math
import random
import statistics

RESAMPLES = 2000


def ratio(ours, theirs, seed=1):
    """Ratio of medians with its 95 % interval: rounds are drawn anew, each side by itself. The seed is fixed, so that the same data
    give the same interval."""
    chance = random.Random(seed)
    point = statistics.median(ours) / statistics.median(theirs)
    drawn = sorted(statistics.median(chance.choices(ours, k=len(ours))) / statistics.median(chance.choices(theirs, k=len(theirs)))
                   for _ in range(RESAMPLES))
    return point, drawn[int(0.025 * RESAMPLES)], drawn[int(0.975 * RESAMPLES) - 1]


def interval(values, seed=1):
    chance = random.Random(seed)
    drawn = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return statistics.median(values), drawn[int(0.025 * RESAMPLES)], drawn[int(0.975 * RESAMPLES) - 1]


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else None
