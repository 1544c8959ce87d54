"""What column batches save on the link, and how fast they are made and landed."""
