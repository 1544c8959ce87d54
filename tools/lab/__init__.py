"""The laboratory: commands that measure, torture, check and demonstrate Holdfast."""
