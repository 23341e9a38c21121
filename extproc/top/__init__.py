"""A router's dashboard in a terminal: the command ``top``."""
