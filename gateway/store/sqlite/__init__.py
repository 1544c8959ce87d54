"""The store's files, whatever is in them: SQLite databases, write-ahead logs, the folder, and marks that tell them
apart.
"""
