"""The commands of `holdfast site`."""
