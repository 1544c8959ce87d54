"""The commands of `holdfast device`."""
