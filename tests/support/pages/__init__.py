"""The written pages as scripts: their fences, and the stage on which tests run them."""
