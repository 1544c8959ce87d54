"""What is tried on the parts of Holdfast that must not break, with the faults that break such things."""
