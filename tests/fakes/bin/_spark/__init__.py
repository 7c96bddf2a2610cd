"""A pair of Sparks as far as programs can see them: shapes after public reports, none recorded by us.

Nobody here has a Spark. What the programs print follows what owners and NVIDIA have published; where a
report leaves a detail open, the plainest form was taken. So a green run proves that the roles handle these
shapes (emulated), not that a Spark prints them.
"""
