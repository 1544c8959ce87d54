"""The `holdfast` command, without the laboratory's commands (`tools/lab`)."""
