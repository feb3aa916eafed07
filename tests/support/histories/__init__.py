"""Random histories of several daemons in rooms: made from a seed, played on a stage, judged, and shortened."""
