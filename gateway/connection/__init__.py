"""A client's connection: from bytes to packets, to what each of them does, and answers back."""
