"""What lies below the engine: driver, kernel, fabric, memory. Standard library only.

`record` asks a node (read-only), `view` reads the answers, `checks` judge them, `symptoms` says
what to
do. A recording is plain JSON: it can be judged on another machine, on another day, and attached to
a report.
"""
