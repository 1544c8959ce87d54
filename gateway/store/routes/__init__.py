"""What the store has for routes: their cursors, and what they leave out, set aside and say of themselves."""
