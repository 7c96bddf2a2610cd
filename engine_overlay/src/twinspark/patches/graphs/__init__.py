"""CUDA graph capture and replay."""
