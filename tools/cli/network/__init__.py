"""What `holdfast network` does: work on the networks that gateways form."""
