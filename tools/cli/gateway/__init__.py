"""The commands of `holdfast gateway`."""
