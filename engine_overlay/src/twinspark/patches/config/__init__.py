"""Configuration and dispatch: decided before any weight is read."""
