"""What the event loop does when: timers, events, and whose work it does how long at a time."""
