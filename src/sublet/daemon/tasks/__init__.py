"""Work beside the loop: threads of one call, tasks of one service, one failure instead of a group."""
