"""What counts when a document is read, and how a reader sees it."""
