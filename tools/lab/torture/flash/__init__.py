"""The flash store under power cuts, bit rot and ruined images."""
