"""How every layer above reaches its own files: written so that they survive a crash, opened so that nobody who may
change what lies below a directory can lead us out of it or keep us waiting. Imports nothing of ours.
"""
