"""One file a revision. A revision that was released is never changed."""
