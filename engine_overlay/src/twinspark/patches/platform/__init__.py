"""What the engine believes about the device."""
