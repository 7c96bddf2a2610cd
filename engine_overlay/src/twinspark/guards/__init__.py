"""Guards: checks that see a server whose answers are wrong while its port is open.

Nothing here imports torch or vLLM: a guard talks to the server as its users do, and reads what the
system and the overlay's reports say.
"""
