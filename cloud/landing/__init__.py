"""From the central broker into landing files."""
