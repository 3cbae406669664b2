## src/fsdp.  Sources and private headers go into the library, public headers
## are installed.
libfsdp_la_SOURCES +=
fsdpinclude_HEADERS +=
