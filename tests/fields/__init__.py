"""The register of what is accepted from outside: each field of a model, and the test that turns red without it."""
