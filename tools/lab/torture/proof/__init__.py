"""The proof under random histories: tables must not say complete while an acknowledged message is missing."""
