"""Block devices to keep a store on."""
