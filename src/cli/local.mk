## src/cli: the program `fsdp`.
if HAVE_CLI
bin_PROGRAMS += fsdp
fsdp_SOURCES  = %D%/main.c
fsdp_LDADD    = libfsdp.la
endif
