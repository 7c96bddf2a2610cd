"""What owners of such pairs have met: symptom, cause, fix, source; the source of docs/symptoms.md.

The field's reports are quoted as theirs; none was reproduced on a Spark by this project. Rows 1-48
are owners' problems, rows from 49 on are facts about the hardware that a check watches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinspark.host.symptoms_engine import ENGINE_ROWS
from twinspark.host.symptoms_hardware import HARDWARE_ROWS
from twinspark.host.symptoms_host import HOST_ROWS

if TYPE_CHECKING:
    from twinspark.host.symptom import Symptom

SYMPTOMS: dict[int, Symptom] = dict(sorted({**HOST_ROWS, **ENGINE_ROWS, **HARDWARE_ROWS}.items()))
