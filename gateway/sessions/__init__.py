"""What the gateway keeps of each client between its connections: sessions, subscribers, wills."""
