"""How the process fares: stalls, memory, private parts of libraries, and what ``doctor`` looks at."""
