"""What is published over one connection: taken, refused or kept waiting, stored, and answered."""
