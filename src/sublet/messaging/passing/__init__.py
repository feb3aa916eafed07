"""What is said in passing: presence and awareness, in memory alone."""
