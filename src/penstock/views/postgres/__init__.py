"""PostgreSQL tables as sources: queries to the server, the capture of changes, and checks that none is missed."""
