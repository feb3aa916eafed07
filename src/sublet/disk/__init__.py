"""Files that survive a crash: what every layer above writes its state with; imports nothing of ours."""
