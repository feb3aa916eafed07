"""What is given on a command line: options, arguments, and text on standard input."""
