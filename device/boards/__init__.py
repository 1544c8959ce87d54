"""What differs between boards, one module a board."""
