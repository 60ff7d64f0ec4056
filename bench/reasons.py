# SPDX-License-Identifier: Apache-2.0
"""Why an aim is not reached, where that is known: what report.py says below its table. A reason stays true only as long as the code
that it speaks of: look at it again when that changes. docs/tuning.md has what was tried."""
import re

REASONS = (
)


def of(aim):
    """The sentence, or None."""
    return next((text for pattern, text in REASONS if re.search(pattern, aim)), None)
