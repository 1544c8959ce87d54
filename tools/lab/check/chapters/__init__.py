"""The checks: a file for each chapter of the standards, a function for each thing that a server does or does not do."""
