"""The block devices on which a store can be kept."""
