"""A storm of broken sessions against a gateway, beside ordinary clients."""
