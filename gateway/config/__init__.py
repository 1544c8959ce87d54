"""The gateway's configuration file: its keys, its errors, and the files that it names."""
