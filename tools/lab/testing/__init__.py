"""What tests and the laboratory share: processes, lines, clients and certificates."""
