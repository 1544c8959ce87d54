"""What the parts cost, counted: the commands of ``holdfast bench``."""
