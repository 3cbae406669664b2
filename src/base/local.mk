## src/base: sources and private headers, all of which go into the library.
libfsdp_la_SOURCES +=
