"""The ext_proc protocol without I/O: messages in, messages and events out."""
