"""One module a guard; `twinspark.guards.registry` puts them in order."""
