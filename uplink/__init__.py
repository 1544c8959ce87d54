"""Routes from a gateway to the next broker: store-and-forward over links that come and go."""
