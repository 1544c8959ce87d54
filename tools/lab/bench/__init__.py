"""The commands of ``holdfast bench``: they measure speed, memory, wear and bytes."""
