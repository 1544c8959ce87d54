"""Questions to the tables: the views' SQL, and the engines that answer."""
