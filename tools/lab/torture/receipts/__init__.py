"""A gateway whose route keeps messages until a receipt, and everything behind it that loses them."""
