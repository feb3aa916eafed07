"""File access beneath one directory descriptor, and nowhere else: the only way a lent directory is read or changed."""
