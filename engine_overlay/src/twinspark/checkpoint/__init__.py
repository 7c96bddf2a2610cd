"""The model's files: what they are, that they are whole, and how they reach both nodes.

Everything but `hub` needs the standard library only. This part runs on a node before that node has
any environment of ours (the weights come before the engine), by the system's Python and straight
from the wheel, which is a zip file: `PYTHONPATH=twinspark-0.1.0-py3-none-any.whl python3 -m
twinspark.checkpoint verify DIR`. For the same reason foreign JSON is decoded by hand
(`manifest.Reader`) where the rest of the project uses pydantic.
"""
