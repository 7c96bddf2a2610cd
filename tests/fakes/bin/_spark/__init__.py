"""A pair of Sparks as far as programs can see them: shapes after public reports, not our records.

Nobody here has a Spark. What the programs print follows what owners and NVIDIA have published;
where a report leaves a detail open, the plainest form was taken. A green run proves that the
roles handle these shapes (emulated), not that a Spark prints them.
"""
