"""What a route's sender fetches from: messages as its rules shape them, in batches, in the order of its lanes."""
