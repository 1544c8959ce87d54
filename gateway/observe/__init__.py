"""What a gateway says of itself: metrics, health and $SYS topics."""
