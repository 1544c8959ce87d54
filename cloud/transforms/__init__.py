"""Pure steps of the job: DataFrame → DataFrame, and plain Python functions beneath them."""
