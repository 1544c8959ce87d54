"""What tests and the laboratory share: processes, lines, clients, certificates and simulated flash."""
