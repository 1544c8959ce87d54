"""The commands of ``holdfast lab bench``: they measure speed, memory, wear and bytes."""
