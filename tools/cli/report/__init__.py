"""`holdfast cloud report`: one page about the tables."""
