"""Which rooms are here, who is in them with which power, and which shards their timelines have."""
