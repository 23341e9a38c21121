"""Which replica has seen which checkpoint and how busy it is, shared by all routers."""
