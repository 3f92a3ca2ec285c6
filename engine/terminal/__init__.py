"""A chat in the terminal: a client of the server's HTTP API, and of nothing else of this project."""
