"""What the Python checks share. A check puts `tests` on its path: `sys.path.insert(0, ...)` of its own folder's parent."""
