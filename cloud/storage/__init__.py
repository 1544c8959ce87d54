"""Where landing files and tables lie: a local folder, or a part of an object store."""
