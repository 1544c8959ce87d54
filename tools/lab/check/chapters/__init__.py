"""The checks: a file for each chapter of the standards, a function for each behaviour of a server."""
