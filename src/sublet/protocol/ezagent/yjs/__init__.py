"""The part of the Yjs update format (version 1) that rooms use: a strict decoder and an encoder of single edits."""
